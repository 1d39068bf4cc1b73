"""Questions with their options as sequences."""

import dataclasses
import re
from collections.abc import Collection, Sequence

import numpy as np

from albert_tf.runtime.arguments import is_index
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.tasks.features import TextFeatures, pack, split_windows
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.text.ragged import ragged_ranges
from albert_tf.text.tokenizer import Tokenizer


def featurize_choices(
    examples: Sequence[ChoiceExample], tokenizer: Tokenizer, task: MultipleChoiceSettings
) -> TextFeatures:
    """Build [CLS] context [SEP] question and option [SEP] for each option.

    Contexts are truncated at the end, or each of their windows is a unit. A unit has as many
    sequences as the question with the most options; those of missing options have no pieces. The
    target `label` [N] exists if every example has a label.

    Raises:
      InputError: a question has fewer than two options, or something else than a list of them; or
        its label is not the index of an option.
    """
    for row, example in enumerate(examples):
        options = example.options
        is_list = isinstance(options, Collection) and not isinstance(options, str)
        if not is_list or len(options) < 2:
            raise InputError(
                f"Every question must have a list of at least 2 options. Received in example {row} "
                f"({example.question!r}): {len(options) if is_list else options}."
            )
        if example.label is not None and not is_index(example.label, len(options)):
            raise InputError(
                f"`label` of example {row} must be the index of an option, an integer in [0, "
                f"{len(options)}). Received: {shortened(example.label)}."
            )
    texts = list(dict.fromkeys(example.context for example in examples))
    contexts = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    questions = tokenizer.encode_batch(
        [fill_blanks(e.question, option) for e in examples for option in e.options]
    )
    max_pieces = task.seq_length - 3  # [CLS] and two [SEP]
    second = [ids[-task.max_qa_pieces :] for ids in questions]
    counts = np.array([len(example.options) for example in examples], np.int64)
    parts, unit = [contexts[example.context] for example in examples], np.arange(len(examples))
    if task.long_texts != "cut" and examples:
        longest = np.maximum.reduceat([*map(len, second)], np.cumsum(counts) - counts)
        parts, unit = split_windows(parts, max_pieces - longest)
    # The rows of `questions` for each unit.
    rows = ragged_ranges((np.cumsum(counts) - counts)[unit], counts[unit]).tolist()
    counts = counts[unit]
    full_contexts = [ids for ids, count in zip(parts, counts, strict=True) for _ in range(count)]
    questions, second = [questions[row] for row in rows], [second[row] for row in rows]
    first = [
        ids[: max_pieces - len(other)] for ids, other in zip(full_contexts, second, strict=True)
    ]
    kept_lengths = [len(ids) for part in (first, second) for ids in part]
    full_lengths = [len(ids) for part in (full_contexts, questions) for ids in part]
    cut = np.not_equal(kept_lengths, full_lengths).reshape(2, len(second)).any(axis=0)
    sequences = pack(first, second, task.seq_length, tokenizer.special)
    per_unit = int(counts.max()) if examples else task.num_choices
    is_option = (np.arange(per_unit) < counts[:, None]).ravel()  # [N x per_unit]
    sequences = dataclasses.replace(sequences, cut=cut).at_places(is_option)
    labels = [example.label for example in examples]
    known = {} if None in labels else {"label": np.array(labels, np.int32)[unit]}
    unit = unit.astype(np.int32)
    return TextFeatures(
        sequences, task.seq_length, known, per_unit, limits=_limits(task), example=unit
    )


def _limits(task: MultipleChoiceSettings) -> str:
    """Return the limits beyond which a question is truncated, for notes."""
    whole, question = f"task.seq_length={task.seq_length}", f"task.qa_length={task.qa_length}"
    if task.long_texts == "cut":
        return f"{whole} or {question}"
    return f"{question}, or half of {whole},"


def fill_blanks(question: str, option: str) -> str:
    """Put the option into the question's blanks, or after a question without blanks.

    A blank is a run of underscores, also between letters.
    """
    filled, count = re.subn("_+", lambda _: option, question)
    return filled if count else f"{question} {option}"
