"""SWAG: which of four endings continues a sentence (Zellers et al., EMNLP 2018)."""

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from finetuning.datasets.choices.choice_dataset import ChoiceDataset, choice_example
from finetuning.datasets.dataset import Data, Source, require_section
from finetuning.datasets.selection import limited, with_dev
from finetuning.datasets.tables.part_files import find
from finetuning.datasets.tables.table_files import open_table

TEXTS = ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3")


class Swag(ChoiceDataset):
    """The dataset.

    `--data_dir` holds train.csv, val.csv (the part `dev`) and test.csv (without labels). The first
    sentence is the context, the beginning of the second one is the question, and the endings are
    the options.
    """

    language = "en"

    def read(self, source: Source) -> Data:
        """Read the training and dev examples."""
        train = _read(source, "train")
        rest, dev = with_dev(source, train, {"dev": lambda: _read(source, "dev")})
        return Data(
            MultipleChoiceSettings(num_choices=4, seq_length=128), limited(source, rest), dev
        )

    def read_part(
        self, source: Source, part: str, task: MultipleChoiceSettings
    ) -> list[ChoiceExample]:
        """Read the examples of a part, such as test."""
        require_section("SWAG", task, kind=self.kind)
        return _read(source, part, to_predict=True)


def _read(source: Source, part: str, to_predict: bool = False) -> list[ChoiceExample]:
    table = open_table(find(source.data_dir or "", [f"{part}.csv"]))
    has_label = "label" in table.columns or not to_predict
    names = (*TEXTS, "label") if has_label else TEXTS
    examples = []
    for location, cells in table.select(names, allow_empty=to_predict):
        context, question, *options = cells[: len(TEXTS)]
        label = _index(cells[-1], location) if has_label else None
        examples.append(choice_example(location, question, context, options, label))
    return examples


def _index(label: str, location: str) -> int:
    if label not in ("0", "1", "2", "3"):
        raise InputError(
            f"{location}: label must be 0, 1, 2 or 3. Received: {label!r}. Correct or remove the "
            "row."
        )
    return int(label)
