"""GLUE: nine tasks and their diagnostic set, from the benchmark's own files or from TFDS."""

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.task_settings import TaskSettings
from data.corpora.tfds_texts import tfds_rows
from finetuning.datasets.dataset import Prediction, Source, paper_settings
from finetuning.datasets.labeled_texts import LabeledTexts
from finetuning.datasets.tables.part_files import find
from finetuning.datasets.tables.table_files import Rows, Table, note_if_quoted, open_table

# The files' names for the columns `label`, `sentence1` and `sentence2` of the table below.
ALIASES = {
    **dict.fromkeys(("gold_label", "is_duplicate", "score", "Quality", "Label"), "label"),
    **dict.fromkeys(("#1 String", "premise", "Premise"), "sentence1"),
    **dict.fromkeys(("#2 String", "hypothesis", "Hypothesis"), "sentence2"),
}
LARGEST_SCORE = 5.0


@dataclasses.dataclass(frozen=True)
class GlueTask(LabeledTexts):
    """A task of the benchmark.

    `--data_dir` is the folder of its files (glue/CoLA) or that folder's parent (glue).

    Attributes:
      name: the name of the folder, of the submission and in messages.
      tfds: the name in TFDS, under `glue/`.
      recipe: the paper's settings.
      labels: the labels in the order of the logits; empty if the task predicts a score from 0 to 5.
      texts: the columns of the text or texts.
      metrics: the names of the metrics; the first one chooses the best weights.
      dev: the dev parts; the first one chooses the best weights.
      test: the files' name for the part `test`.
      headless: the columns of the training and dev files, if these have no header.
      official: part -> file of the dataset's own distribution, read if there is none of GLUE's.
      lenient: accept empty texts and skip training and dev rows that are too short, as the official
        readers do; the released files contain both.
      trained_on: the task to train on instead, if there is no training part.
    """

    name: str
    tfds: str
    recipe: Mapping[str, Any] = dataclasses.field()
    labels: tuple[str, ...] = ("0", "1")
    texts: tuple[str, ...] = ("sentence1", "sentence2")
    metrics: tuple[str, ...] = ("accuracy",)
    dev: tuple[str, ...] = ("dev",)
    test: str = "test"
    headless: tuple[str, ...] = ()
    official: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lenient: bool = False
    trained_on: str | None = None

    language = "en"
    has_tfds = True

    def without(
        self, train: Sequence[TextExample], dev: Mapping[str, Sequence[TextExample]]
    ) -> Sequence[TextExample]:
        """Return the training examples; without those of the dev part, if a file has both."""
        return _without(train, dev) if self.official else train

    def read_part(self, source: Source, part: str, task: TaskSettings) -> list[TextExample]:
        """Read the examples of a part; for MNLI, `dev` and `test` are the matched ones."""
        name = {"dev": self.dev[0], "test": self.test}.get(part, part)
        return super().read_part(source, name, task)

    def number(self, prediction: Prediction) -> float:
        """Return the number of the label, or the score."""
        return super().number(prediction) if self.labels else prediction["score"]

    def answer(self, prediction: Prediction) -> str:
        """Return the label, or the score within its limits, with three decimals.

        GLUE expects the file name CoLA.tsv, and for MNLI MNLI-m.tsv.
        """
        if self.labels:
            return prediction["label"]
        return f"{np.clip(prediction['score'], 0, LARGEST_SCORE):.3f}"

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The kind of the task."""
        return self.section.kind

    @property
    def section(self) -> TaskSettings:
        """The default `task` section of the task's runs."""
        return super().section if self.labels else RegressorSettings(pair=len(self.texts) > 1)

    def table(self, source: Source, part: str) -> Table:
        """Return the table of a part, with the names of `ALIASES`."""
        has_labels = part == "train" or part in self.dev
        header = self.headless if has_labels else ()
        table = open_table(self._file(source, part), header, quotes_are_text=True)
        columns = tuple(ALIASES.get(name, name) for name in table.columns)
        return dataclasses.replace(table, columns=columns)

    def rows(self, source: Source, part: str, allow_empty: bool) -> Rows:
        """Return `file:line`, the texts, and the label if the file has one, for each row."""
        if source.tfds:
            return self._tfds_rows(source, part)
        table, is_known = self.table(source, part), part == "train" or part in self.dev
        has_labels = is_known or "label" in table.columns
        names = (*self.texts, "label") if has_labels else self.texts
        rows = table.select(names, self.lenient and has_labels, allow_empty or self.lenient)
        return note_if_quoted(rows, len(self.texts))

    def _file(self, source: Source, part: str) -> str:
        folder = source.data_dir or ""
        if os.path.isdir(os.path.join(folder, self.name)):
            folder = os.path.join(folder, self.name)
        try:
            return find(folder, [f"{part}.tsv"])
        except InputNotFoundError as error:
            if part in self.official:  # GLUE's download script leaves both files in the folder
                return find(folder, [f"{part}.tsv", self.official[part]])
            if self.official and part in self.dev:
                raise InputNotFoundError(
                    f"{error} In GLUE it holds the rows of {self.official['train']} whose ids are "
                    f"in {_MRPC_DEV_IDS}, under the same header."
                ) from None
            raise

    def _tfds_rows(self, source: Source, part: str) -> Iterator[tuple[str, list[str]]]:
        """Yield the same from TFDS, in the order of the original files."""
        name = f"glue/{self.tfds}"
        split = part.replace("dev", "validation").replace("diagnostic", "test")
        features, rows = tfds_rows(name, source.data_dir, split)
        keys = {ALIASES.get(key, key): key for key in features}
        names = getattr(features["label"], "names", None)
        if names is not None and set(names) != set(self.labels):
            names = self.labels  # TFDS has names for the files' numbers, in the same order
        for row in sorted(rows, key=lambda row: row["idx"]):
            cells = [row[keys[column]].decode() for column in self.texts]
            if row["label"] >= 0:  # -1: unknown
                cells.append(names[row["label"]] if names else str(row["label"]))
            yield f"{name}:{split}:{row['idx']}", cells

    def label(self, text: str, location: str) -> float:
        """Return the number of a label, or a score.

        Raises:
          InputError: it is none.
        """
        if self.labels:
            return super().label(text, location)
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not 0 <= score <= LARGEST_SCORE:
            raise InputError(
                f"{location}: the score must be a number from 0 to 5. Received: {text!r}. Correct "
                "or remove the row."
            )
        return score


def _without(
    train: Sequence[TextExample], dev: Mapping[str, Sequence[TextExample]]
) -> list[TextExample]:
    """Return the training examples that are in no dev part, as in GLUE's own files.

    Raises:
      InputError: none is left.
    """
    texts = {_texts_of(example) for part in dev.values() for example in part}
    rest = [example for example in train if _texts_of(example) not in texts]
    if not rest:
        raise InputError("--data_dir: every training example is a dev example too. Check dev.tsv.")
    if len(rest) < len(train):
        print(f"train: {len(train) - len(rest):,} examples that are in the dev part left out")
    return rest


def _texts_of(example: TextExample) -> tuple[str, str]:
    return example.first.strip(), (example.second or "").strip()


_MRPC_DEV_IDS = "https://dl.fbaipublicfiles.com/glue/data/mrpc_dev_ids.tsv"
ENTAILMENT = ("entailment", "not_entailment")
INFERENCE = ("contradiction", "entailment", "neutral")  # the order of google-research/albert
QUESTIONS = ("question1", "question2")
GLUE = {
    "cola": GlueTask(
        "CoLA",
        "cola",
        paper_settings(1e-5, 16, 5336, 320),
        texts=("sentence",),
        metrics=("mcc", "accuracy"),
        headless=("source", "label", "mark", "sentence"),
    ),
    "sst-2": GlueTask("SST-2", "sst2", paper_settings(1e-5, 32, 20935, 1256), texts=("sentence",)),
    "mrpc": GlueTask(
        "MRPC",
        "mrpc",
        paper_settings(2e-5, 32, 800, 200),
        metrics=("accuracy", "f1"),
        official={"train": "msr_paraphrase_train.txt", "test": "msr_paraphrase_test.txt"},
    ),
    "sts-b": GlueTask(
        "STS-B",
        "stsb",
        paper_settings(2e-5, 16, 3598, 214),
        labels=(),
        metrics=("pearson", "spearman"),
    ),
    "qqp": GlueTask(
        "QQP",
        "qqp",
        paper_settings(5e-5, 128, 14000, 1000, 0.1),
        texts=QUESTIONS,
        metrics=("accuracy", "f1"),
        lenient=True,
    ),
    "mnli": GlueTask(
        "MNLI",
        "mnli",
        paper_settings(3e-5, 128, 10000, 1000),
        INFERENCE,
        dev=("dev_matched", "dev_mismatched"),
        test="test_matched",
    ),
    "qnli": GlueTask(
        "QNLI",
        "qnli",
        paper_settings(1e-5, 32, 33112, 1986, evaluate_every=200),
        ENTAILMENT,
        texts=("question", "sentence"),
    ),
    "rte": GlueTask("RTE", "rte", paper_settings(3e-5, 32, 800, 200, 0.1), ENTAILMENT),
    "wnli": GlueTask("WNLI", "wnli", paper_settings(2e-5, 16, 2000, 250, 0.1)),
    # diagnostic.tsv has no labels, but diagnostic-full.tsv does.
    "ax": GlueTask(
        "AX",
        "ax",
        {},
        INFERENCE,
        metrics=("mcc", "accuracy"),
        dev=("diagnostic-full",),
        test="diagnostic",
        trained_on="mnli",
    ),
}
