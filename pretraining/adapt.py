r"""Continue a trained model on your own text, and print what it gains there and loses elsewhere.

With --new_pieces, your words join the model's vocabulary (`data.train_tokenizer --extend`). Your
text and --general become records, of documents to train on and of held-out ones (`data.build`).
Training continues on a mixture of both (`pretraining.train --init`). Both models are then evaluated
on the held-out documents of each text (`pretraining.evaluate`).

    python -m pretraining.adapt --corpus=text:'corpus/*.txt' --general=jsonl:'wiki/*.jsonl.gz' \
        --new_pieces=4000 --minutes=60 --output=runs/own

OUTPUT/run is the new model, OUTPUT/README.md the table, and OUTPUT/adapt.json its values. Run the
command again to resume it.
"""

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

from albert_tf.models.checkpoints import weights_fingerprint
from albert_tf.models.config import AlbertConfig
from albert_tf.models.pretrainer import require_heads
from albert_tf.runtime import commands, pretrained, settings
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE, between, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.report_text import counted, markdown_table
from albert_tf.runtime.run_dir import RunDir
from data.corpora.corpus import NumberedCorpus, read_documents, split_of
from data.corpora.glance import MOST_UNKNOWN
from data.records.manifest import Manifest
from pretraining.loop.first_weights import require_same_model
from pretraining.loop.groups import experiment
from pretraining.sweeping.calls import CommandError, call, steps_within
from pretraining.sweeping.plan import of_length

RESULT = "adapt.json"
OWN, GENERAL = "own", "general"


@dataclasses.dataclass(frozen=True)
class AdaptOptions(commands.CommandOptions):
    """The command line of `pretraining.adapt`."""

    corpus: str = commands.option("your own text, as for data.build", path=True)
    output: str = commands.option("folder for all results; an existing one is resumed", path=True)
    init: str = commands.option(
        "the model to continue, as for pretraining.train", "albert-mini-en", path=True
    )
    general: str | None = commands.option(
        "general text, against forgetting: to mix in and to evaluate on", None, path=True
    )
    own_weight: Annotated[float, between("[0.002, 500]")] = commands.option(
        "sequences of your text for each one of the general text", 3.0, needs="general"
    )
    new_pieces: Annotated[int | None, NOT_NEGATIVE] = commands.option(
        "words and parts of words to add to the vocabulary, besides unknown characters; by default "
        "the vocabulary stays",
        None,
    )
    steps: Annotated[int | None, POSITIVE] = commands.option(
        "steps to train; by default those of the experiment", None
    )
    minutes: Annotated[float | None, POSITIVE] = commands.option(
        "time to train; the first minutes measure the speed", None, excludes="steps"
    )
    experiment: str = commands.option("as for pretraining.train", "adapt")
    document_boundary: str = commands.option(
        "what separates documents of your text, as for data.build", "blank_line"
    )
    text_column: str = commands.option(
        "the key of your own text in JSON lines, its column in parquet and Arrow files",
        "text",
    )
    general_text_column: str = commands.option(
        "the same of the general text", "text", needs="general"
    )
    errors: str = commands.option("on invalid UTF-8: strict = fail, replace = U+FFFD", "strict")
    seq_length: int = commands.option("pieces per sequence, as for data.build", 128)
    heldout_fraction: Annotated[float, between("(0, 1)")] = commands.option(
        "share of the documents that are only evaluated on", 0.05
    )
    device: Annotated[str, one_of("auto", "cpu", "gpu")] = commands.option(
        "as for pretraining.train: auto, cpu or gpu", "auto"
    )
    dry_run: bool = commands.option("check the options, and that the files can be read", False)
    set: tuple[str, ...] = commands.option("key=value, as for pretraining.train", ())


def main(options: AdaptOptions, run_command: Callable[..., None] = call) -> int:
    """Run what is not yet done, print the table, and return the exit status.

    `run_command` can replace the separate process of each command.
    """
    adaptation = Adaptation(options, run_command)
    if options.dry_run:
        steps = counted(adaptation.steps, "step") if adaptation.steps else "as many steps as fit"
        print(f"{options.output}: {steps}")
        return 0
    try:
        figures = adaptation.run()
    except CommandError as error:
        print(f"{options.output}: {error}", file=sys.stderr)
        return commands.USAGE_ERROR
    report, result = table(figures), adaptation.identity | {"figures": figures}
    outputs.write_json(os.path.join(options.output, RESULT), result)
    outputs.write_bytes(os.path.join(options.output, "README.md"), f"{report}\n".encode())
    print(report)
    return 0


class Adaptation:
    """The stages, each of which does nothing if its output is complete.

    Attributes:
      identity: what adapt.json has besides the figures: the options, and the fingerprint of the
        weights of --init.

    Raises:
      InputError: an option is invalid, or a text cannot be read.
    """

    def __init__(self, options: AdaptOptions, run_command: Callable[..., None]) -> None:
        self.options, self._call = options, run_command
        self.config = settings.override(experiment(options.experiment), options.set)
        self.steps = options.steps or (None if options.minutes else self.config.loop.steps)
        if self.config.evaluation.every:
            raise InputError(
                "`evaluation.every` must be 0, since both models are evaluated once, at the ends. "
                f"Received: {self.config.evaluation.every}. Leave it out."
            )
        self._texts = {OWN: options.corpus}
        if options.general:
            self._texts[GENERAL] = options.general
        for name, corpus in self._texts.items():
            NumberedCorpus(
                corpus, self._boundary(name), options.errors, None, self._column(name)
            ).require_text()
            _require_outside(options.output, corpus)
            self._require_both_splits(name)
        init = pretrained.locate(options.init)
        require_heads(init)
        longest = max(self.config.model.max_positions, options.seq_length)
        model = self.config.model.replace(max_positions=longest)
        require_same_model(options.init, AlbertConfig.from_json(init), model, False)
        self.identity = {
            "options": settings.to_dict(options),
            "init_weights": weights_fingerprint(init),
        }
        if options.general and "," in options.output:
            raise InputError(
                f"--output must not contain a comma beside --general. Received: {options.output!r}."
            )
        if not os.path.isfile(self._path(RESULT)):
            outputs.require_new(options.output)
        elif self._is_begun():
            self._require_same_options()

    def _require_both_splits(self, name: str) -> None:
        """Check that a text has documents to train on, and held-out ones."""
        missing = {"train", "heldout"}
        corpus, share = self._texts[name], self.options.heldout_fraction
        arguments = (self._boundary(name), self.options.errors, None, self._column(name))
        count = 0
        for document in read_documents(corpus, *arguments):
            count += 1
            missing.discard(split_of(document, share))
            if not missing:
                return
        place = "held out" if "train" in missing else "to train on"
        raise InputError(
            f"{corpus} must have documents to train on and held-out ones. Received: "
            f"{counted(count, 'document')}, all {place}. "
            f"Set another --document_boundary, or another --heldout_fraction than {share}."
        )

    def run(self) -> dict[str, dict[str, Any]]:
        """Return the figures of both models on the held-out documents of each text."""
        os.makedirs(self.options.output, exist_ok=True)
        if not self._is_begun():  # this file marks the folder as ours
            outputs.write_json(self._path(RESULT), self.identity)
        init, vocabulary, texts = self.options.init, self._vocabulary(), self._texts
        old = {name: self._records(name, "heldout", init) for name in texts}
        new = {name: self._records(name, "heldout", vocabulary) for name in texts}
        before = {name: self._evaluation(init, old[name]) for name in texts}
        run = self._train({name: self._records(name, "train", vocabulary) for name in texts})
        after = {name: self._evaluation(run.path, new[name]) for name in texts}
        return {name: {"before": before[name], "after": after[name]} for name in texts}

    def _require_same_options(self) -> None:
        known, now = outputs.read_json(self._path(RESULT)), json.loads(json.dumps(self.identity))
        begun = known.get("options")
        if not isinstance(begun, dict):
            raise InputError(f"{self._path(RESULT)!r} must hold the options. Remove the folder.")
        changed = [
            f"--{key}={value} (was {begun.get(key)})"
            for key, value in now["options"].items()
            if key not in ("device", "dry_run", "output") and value != begun.get(key)
        ]
        if known.get("init_weights", now["init_weights"]) != now["init_weights"]:
            changed.append(f"--init={self.options.init}, whose weights have changed")
        if changed:
            raise InputError(
                f"--output={self.options.output} was made with other options: "
                f"{'; '.join(changed)}. Pass the same ones, or another --output."
            )

    def _is_begun(self) -> bool:
        """Return True if something was made by these options."""
        return any(name != RESULT for name in os.listdir(self.options.output))

    def _path(self, *names: str) -> str:
        return os.path.join(self.options.output, *names)

    def _boundary(self, name: str) -> str:
        return self.options.document_boundary if name == OWN else "blank_line"

    def _column(self, name: str) -> str:
        options = self.options
        return options.text_column if name == OWN else options.general_text_column

    def _vocabulary(self) -> str:
        """Return the tokenizer of the new model, after extending it if asked for."""
        options, folder = self.options, self._path("tokenizer")
        if options.new_pieces is None:
            return options.init
        flags = [f"--extend={options.init}", f"--new_pieces={options.new_pieces}"]
        self._call("data.train_tokenizer", *flags, *self._documents(OWN, "train", folder))
        return folder

    def _records(self, name: str, split: str, tokenizer: str) -> str:
        """Build records of a text, and return their folder."""
        vocabulary = "old" if tokenizer == self.options.init else "new"
        folder = self._path("records", f"{name}-{split}-{vocabulary}-vocabulary")
        flags = [f"--tokenizer={tokenizer}", f"--seq_length={self.options.seq_length}"]
        self._call("data.build", *flags, *self._documents(name, split, folder))
        return folder

    def _documents(self, name: str, split: str, output: str) -> list[str]:
        """Return the flags of both commands of data."""
        boundary, share = self._boundary(name), self.options.heldout_fraction
        flags = [f"--corpus={self._texts[name]}", f"--document_boundary={boundary}"]
        flags += [f"--errors={self.options.errors}", f"--text_column={self._column(name)}"]
        return [*flags, f"--split={split}", f"--heldout_fraction={share}", f"--output={output}"]

    def _train(self, records: dict[str, str]) -> RunDir:
        """Train the run, unless it is complete, and return it."""
        data, run = records[OWN], RunDir(self._path("run"))
        if GENERAL in records:
            data += f":{self.options.own_weight},{records[GENERAL]}:1"
        if (steps := self.steps) is None:
            begun = os.path.isfile(run.config_path)
            steps = run.section("loop")["steps"] if begun else self._steps_in_time(data)
        self._call_train(data, run, *of_length(self.config, steps))
        return run

    def _steps_in_time(self, data: str) -> int:
        """Return how many steps take --minutes."""
        assert self.options.minutes
        train = functools.partial(self._call_train, data)
        loop = self.config.loop.steps_per_loop
        return steps_within(60 * self.options.minutes, train, loop, self.options.output)

    def _call_train(self, data: str, run: RunDir, *assignments: str) -> None:
        options = self.options
        flags = [f"--experiment={options.experiment}", f"--device={options.device}"]
        flags += [f"--init={options.init}", f"--data={data}", f"--run_dir={run.path}"]
        flags += [f"--set={text}" for text in (*options.set, *assignments)]
        self._call("pretraining.train", *flags)

    def _evaluation(self, model: str, records: str) -> dict[str, Any]:
        """Return the figures of a model on held-out records, evaluating if not yet done."""
        wanted = {"data": os.path.abspath(records), "records": Manifest.read(records).identity()}
        when = "before" if model == self.options.init else "after"
        file = self._path("evaluations", f"{os.path.basename(records)}-{when}.json")
        figures = outputs.read_json(file, allow_nan=True) if os.path.isfile(file) else {}
        if figures | wanted != figures:
            os.makedirs(self._path("evaluations"), exist_ok=True)
            masks = settings.to_dict(self.config.masking).items()
            flags = [f"--run_dir={model}", f"--data={records}", f"--output={file}"]
            flags += [f"--device={self.options.device}", "--trained_only"]
            flags += [f"--set=masking.{key}={value}" for key, value in masks]
            self._call("pretraining.evaluate", *flags)
            figures = outputs.read_json(file, allow_nan=True)
        counts = Manifest.read(records).counts
        pieces = counts.pieces + counts.pieces_lost  # also those that were cut off
        return {
            "bits_per_character": figures["hidden/bits_per_character"],
            "hidden_pieces": figures["hidden/count"],
            "bytes_per_piece": counts.text_bytes / pieces,
            "unknown_pieces": counts.unknown_pieces / pieces,
        }


def _require_outside(output: str, corpus: str) -> None:
    """Check that the results will not be read as texts."""
    location = corpus.partition(":")[2]
    folder = location if os.path.isdir(location) else location.partition("**")[0]
    reads_all_below = os.path.isdir(location) or "**" in location
    if reads_all_below and (os.path.realpath(output) + os.sep).startswith(
        os.path.realpath(folder or ".").rstrip(os.sep) + os.sep
    ):
        raise InputError(
            f"--output must not be in the folder of {corpus}, which would then contain the "
            f"results. Received: {output!r}. Name another folder."
        )


def table(figures: dict[str, dict[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    forms = {
        "bits_per_character": ("bits per character of hidden words", "{:.3f}"),
        "bytes_per_piece": ("bytes of text per piece", "{:.2f}"),
        "unknown_pieces": ("unknown pieces", "{:.2%}"),
        "hidden_pieces": ("hidden pieces", "{:,.0f}"),
    }
    rows = [
        (f"{name} text", title, *(form.format(both[when][key]) for when in ("before", "after")))
        for name, both in figures.items()
        for key, (title, form) in forms.items()
    ]
    text = markdown_table(("held-out documents", "", "before", "after"), rows)
    if any(both["before"]["unknown_pieces"] > MOST_UNKNOWN for both in figures.values()):
        text += (
            "\n\nUnknown pieces are easy to predict and count as a character each, however much "
            "text they stand for: where there are many, the bits per character are too low."
        )
    return text


if __name__ == "__main__":
    commands.run(main, AdaptOptions, __doc__)
