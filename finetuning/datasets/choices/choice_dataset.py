"""Rows of multiple-choice datasets as examples: their options and answers are checked here."""

from collections.abc import Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings, option_letter
from finetuning.datasets.dataset import Dataset, Prediction


def choice_example(
    location: str, question: str, context: str, options: Sequence[Any], label: int | None
) -> ChoiceExample:
    """Return the example of a row.

    Raises:
      InputError: there are fewer than two options, or one of them is not a text.
    """
    if len(options) < 2 or not all(isinstance(option, str) for option in options):
        raise InputError(
            f"{location}: a question must have at least two options, which are texts. Received: "
            f"{list(options)!r} for {question[:80]!r}. Correct or remove the question."
        )
    return ChoiceExample(question, context, tuple(options), label)


def index_of_letter(answer: Any, num_options: int, location: str) -> int:
    """Return the index of the option with the letter `answer`: A, B and so on.

    Raises:
      InputError: no option has this letter.
    """
    letters = [option_letter(i) for i in range(num_options)]
    if answer not in letters:
        raise InputError(
            f"{location}: the answer must be one of {', '.join(letters)}. Received: {answer!r}. "
            "Correct or remove the question."
        )
    return letters.index(answer)


def index_of_answer(answer: str | int, options: Sequence[str], location: str) -> int:
    """Return the index of the option with the letter, the exact text or the index `answer`.

    Raises:
      InputError: there is no such option, or more than one.
    """
    if isinstance(answer, int):
        if not 0 <= answer < len(options):
            raise InputError(
                f"{location}: an integer label is the index of an option, here from 0 to "
                f"{len(options) - 1}. Received: {answer} for the options {list(options)!r}. "
                "Correct it, or write null if the answer of a question to predict is unknown."
            )
        return answer
    letters = [option_letter(i) for i in range(len(options))]
    pairs = zip(letters, options, strict=True)
    matches = [i for i, (letter, text) in enumerate(pairs) if answer in (letter, text.strip())]
    if len(matches) != 1:
        count = "several" if matches else "none"
        raise InputError(
            f"{location}: the label must be the letter ({', '.join(letters)}) or the exact text of "
            f"one option. Received: {answer!r}, which is that of {count} of the options "
            f"{list(options)!r}. Correct or remove the question; for a number, write A for the "
            "first option, B for the second, and so on."
        )
    return matches[0]


def most_options(examples: Sequence[ChoiceExample]) -> int:
    """Return the largest number of options of a question."""
    return max(len(example.options) for example in examples)


class ChoiceDataset(Dataset[MultipleChoiceSettings]):
    """What all multiple-choice datasets share; none of them defines a format of submissions."""

    kind: str = "multiple_choice"
    metrics: tuple[str, ...] = ("accuracy",)

    def number(self, prediction: Prediction) -> float:
        """Return the number of the option."""
        return prediction["choice"]
