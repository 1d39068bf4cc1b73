"""Run the whole pipeline on text that every Python installation contains: `make demo`.

The steps are corpus, vocabulary, records, pretraining, evaluation, SavedModels, a prediction by a
process that cannot import this project, fine-tuning through TF Hub, and predictions of the
classifier. Then the included model, `albert-mini-en`, fills blanks, ranks sentences, and is
fine-tuned on the same table. Each step is the command that you would type for your own text.
Complete steps are skipped.
"""

import collections
import csv
import dataclasses
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from albert_tf.info import bert_of_same_shape
from albert_tf.models.config import AlbertConfig, head_param_counts
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.training.progress import Progress
from data.corpora.corpus import Document, read_documents, split_of

HELDOUT_FRACTION = 0.1
NUM_LABELS = 8
# The same labels for both encoders. The time does not depend on what is installed.
FINETUNING = (
    "--max_train_examples=2000",
    "--set=training.learning_rate=0.001",
    "--set=training.evaluate_every=1000",  # a run has fewer steps
    "--set=task.seq_length=64",
)
# The docstrings of the two Keras packages are nearly the same, so a model could only guess.
NO_LABELS = ("tf_keras",)
FILL_MASK_TEXTS = (
    "This function returns the [MASK] of the array.",
    "Raised when the file does not [MASK].",
    "If the value is None, the default [MASK] is used.",
)
GENERAL_TEXTS = (
    "She opened the [MASK] and walked into the house.",
    "The ship sailed across the Atlantic [MASK].",
    "The book was [MASK] in 1954.",
)
RANKED_TEXTS = (  # the others by their similarity to the first
    "The river flooded the village after days of rain.",
    "Heavy storms drowned the town's streets.",
    "The committee elected a new chairman.",
    "She plays the violin in an orchestra.",
)
CLASSIFIER_TEXTS = (
    "Return the mean of each group, excluding missing values.",
    "Set the color of the axes and redraw the figure.",
    "Check whether one callable type is a subtype of another.",
)

SHIPPED, EMBEDDER = "albert-mini-en", "albert-mini-en-embed"
EXPECTATION_NOTE = (
    "Minutes on a laptop are enough to learn topics and the order of sentences. Predicting words "
    "in context needs more text, a wider model and hours, as with `--experiment=albert-mini`, the "
    f"recipe of {SHIPPED}."
)

# Fails if exports would be asked where our code can be imported.
WITHOUT_OUR_CODE = "import importlib.util; assert importlib.util.find_spec('albert_tf') is None"


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    """The command line of `examples.demo`."""

    output: str = commands.option("the folder for all outputs", "artifacts/demo", path=True)
    experiment: str = commands.option("the pretraining experiment", "laptop")
    dry_run: bool = commands.option("print the commands without running them", False)


class Demo:
    """The demo's run: it executes steps as commands and records their time and memory."""

    def __init__(self, options: DemoOptions) -> None:
        self.options = options
        self.seconds: dict[str, float] = {}
        self.memory_gb = 0.0
        if os.path.isfile(self.at("costs.json")):
            costs = self.read("costs.json")
            self.seconds, self.memory_gb = costs["seconds"], costs["memory_gb"]

    def at(self, *parts: str) -> str:
        """Return a path inside the demo's folder."""
        return os.path.join(self.options.output, *parts)

    def read(self, *parts: str) -> dict:
        """Return the content of a JSON file inside the demo's folder."""
        with open(self.at(*parts), encoding="utf-8") as file:
            return json.load(file)

    def run(self, name: str, *arguments: str) -> None:
        """Run `python ARGUMENTS` as the step `name`.

        Raises:
          InputError: the step failed.
        """
        print(f"\n== {name}\n   python {shlex.join(arguments)}", flush=True)
        if self.options.dry_run:
            return
        start = time.monotonic()
        if status := subprocess.run([sys.executable, *arguments], check=False).returncode:
            raise InputError(f"the step `{name}` failed with status {status}, see above.")
        self.record_time(name, time.monotonic() - start)

    def record_time(self, name: str, seconds: float) -> None:
        """Record a step's time, only once, because rerunning a complete step takes moments."""
        self.seconds.setdefault(name, seconds)
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of all processes
        unit = 1 if sys.platform == "darwin" else 1024  # bytes
        self.memory_gb = max(largest * unit / 1e9, self.memory_gb)
        costs = {"seconds": self.seconds, "memory_gb": self.memory_gb}
        outputs.write_json(self.at("costs.json"), costs)


def main(options: DemoOptions) -> None:
    """Run the demo."""
    demo = Demo(options)
    corpus, labeled = f"jsonl:{demo.at('corpus', 'corpus.jsonl')}", demo.at("corpus", "packages")
    write_corpus(demo)
    demo.run(
        "vocabulary",
        "-m",
        "data.train_tokenizer",
        f"--corpus={corpus}",
        "--vocab_size=8000",
        f"--output={demo.at('tokenizer')}",
    )
    for split, folder in (("train", "records"), ("heldout", "heldout")):
        demo.run(
            f"records ({split})",
            "-m",
            "data.build",
            f"--corpus={corpus}",
            f"--split={split}",
            f"--heldout_fraction={HELDOUT_FRACTION}",
            "--seq_length=64",
            f"--tokenizer={demo.at('tokenizer')}",
            f"--output={demo.at(folder)}",
        )
    demo.run(
        "pretraining",
        "-m",
        "pretraining.train",
        f"--experiment={options.experiment}",
        f"--data={demo.at('records')}",
        f"--run_dir={demo.at('pretrained')}",
    )
    demo.run(
        "evaluation",
        "-m",
        "pretraining.evaluate",
        f"--run_dir={demo.at('pretrained')}",
        f"--data={demo.at('heldout')}",
    )
    for kind in ("encoder", "preprocessing", "fill_mask"):
        export(demo, kind, demo.at("pretrained"))
    # -I: the process can import neither from this folder nor from PYTHONPATH.
    demo.run("isolation", "-I", "-c", WITHOUT_OUR_CODE)
    ask(demo, "fill_mask", FILL_MASK_TEXTS)
    tuned = demo.at("finetuned")
    finetune(demo, labeled, exported(demo, "encoder"), tuned, epochs=6)
    export(demo, "classifier", tuned)
    ask(demo, "classifier", CLASSIFIER_TEXTS)
    use_shipped(demo, labeled)
    if not options.dry_run:
        print(table(demo))


def use_shipped(demo: Demo, labeled: str) -> None:
    """Ask the included models, and fine-tune the first on the same table."""
    export(demo, "fill_mask", SHIPPED, "shipped")
    ask(demo, "fill_mask", GENERAL_TEXTS, "shipped")
    export(demo, "embedding", EMBEDDER, "shipped")
    ask(demo, "embedding", RANKED_TEXTS, "shipped")
    run = demo.at("shipped", "finetuned")
    finetune(demo, labeled, SHIPPED, run, epochs=2)
    export(demo, "classifier", run, "shipped")
    ask(demo, "classifier", CLASSIFIER_TEXTS, "shipped")


def finetune(demo: Demo, labeled: str, encoder: str, run: str, epochs: int) -> None:
    """Fine-tune an encoder to name the package of a docstring."""
    demo.run(
        f"fine-tuning of {encoder}",
        "-m",
        "finetuning.train",
        "--task=text_classification",
        f"--data_dir={labeled}",
        f"--init={encoder}",
        f"--run_dir={run}",
        *FINETUNING,
        f"--set=training.epochs={epochs}",
    )


def ask(demo: Demo, kind: str, texts: Sequence[str], folder: str = "export") -> None:
    """Query an export from a process without this project."""
    path = exported(demo, kind, folder)
    demo.run(f"asking {path}", "-I", "examples/ask.py", path, *texts)


def exported(demo: Demo, kind: str, folder: str = "export") -> str:
    """Return the folder of an export."""
    return demo.at(folder, kind, "1")


def export(demo: Demo, kind: str, run: str, folder: str = "export") -> None:
    """Export a run unless its export exists: a version is never overwritten."""
    if os.path.isdir(path := exported(demo, kind, folder)):
        print(f"\n== export ({kind})\n   {path} is already complete.")
        return
    demo.run(
        f"export ({kind}) of {run}",
        "-m",
        "albert_tf.export",
        f"--run_dir={run}",
        f"--kind={kind}",
        f"--output={demo.at(folder, kind)}",
    )


def write_corpus(demo: Demo) -> None:
    """Write `python_docs` to a JSONL file, once, and make the labeled task from it."""
    folder = demo.at("corpus")
    print(f"\n== corpus\n   python_docs into {folder}", flush=True)
    if demo.options.dry_run or os.path.isdir(folder):
        return
    os.makedirs(demo.options.output, exist_ok=True)
    start = time.monotonic()
    with outputs.new_folder(folder) as partial, Progress("documents") as progress:
        documents = []
        with open(os.path.join(partial, "corpus.jsonl"), "w", encoding="utf-8") as file:
            for document in read_documents("python_docs"):
                # Blank lines between sentences let data.build split them exactly.
                text = "\n\n".join(document.sentences)
                file.write(json.dumps({"text": text, "source": document.source}) + "\n")
                documents.append(document)
                progress.advance(1)
        write_task(documents, os.path.join(partial, "packages"))
    demo.record_time("corpus", time.monotonic() - start)


def write_task(documents: list[Document], folder: str) -> None:
    """Write train.tsv and dev.tsv: docstrings of the most frequent packages, by package."""
    counts = collections.Counter(d.source for d in documents if d.source not in NO_LABELS)
    labels = {label for label, _ in counts.most_common(NUM_LABELS)}
    os.makedirs(folder)
    # The dev split is from the held-out documents, so the encoder has not seen it either.
    for split, name in (("train", "train.tsv"), ("heldout", "dev.tsv")):
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, delimiter="\t", lineterminator="\n")
            rows.writerow(("text", "label"))
            for d in documents:
                if d.source in labels and split_of(d, HELDOUT_FRACTION) == split:
                    rows.writerow((" ".join(d.sentences), d.source))


def accuracy(result: dict) -> str:
    """Return the accuracy of a fine-tuned run with its standard error."""
    return f"{result['accuracy']:.1%} ± {result['standard_error']:.1%}"


def table(demo: Demo) -> str:
    """Return a table of the results."""
    counts = demo.read("records", "manifest.json")["counts"]
    heldout = demo.read("pretrained", "evaluations", "heldout.json")
    config = AlbertConfig.from_json(demo.at("pretrained", "config.json"))
    trained = demo.read("pretrained", "result.json")
    tuned = demo.read("finetuned", "result.json")
    shipped = demo.read("shipped", "finetuned", "result.json")
    bert = bert_of_same_shape(config)
    heads = sum(head_param_counts(config).values())
    rows = {
        "training corpus": f"{counts['text_bytes'] / 1e6:.1f} MB of docstrings, "
        f"{counts['documents']:,} documents, {counts['sentences']:,} sentences",
        "vocabulary": f"{config.vocab_size:,} pieces",
        "records": f"{counts['sequences']:,} sequences, {counts['pieces']:,} pieces",
        "encoder": f"{config.param_count():,} parameters, and {heads:,} in the pretraining heads",
        "BERT of the same shape": f"{bert.param_count():,} (nothing shared, V x H embeddings)",
        "pretraining": f"{trained['step']:,} steps, {trained['tokens_per_s']:,.0f} tokens/s, "
        f"MLM loss {trained['loss/mlm']:.2f}, SOP loss {trained['loss/pair']:.3f}",
        "held-out MLM": f"loss {heldout['loss/mlm']:.2f}, accuracy {heldout['accuracy/mlm']:.1%} "
        f"(always the most frequent piece: {heldout['baseline/mlm']:.1%})",
        "held-out SOP": f"loss {heldout['loss/pair']:.3f}, accuracy {heldout['accuracy/pair']:.1%} "
        f"± {heldout['standard_error/pair']:.1%} (from the lengths alone: "
        f"{heldout['lengths/sop']:.1%} ± {heldout['standard_error/lengths_sop']:.1%})",
        "which package?": f"dev accuracy {accuracy(tuned)} after six epochs "
        f"(always the most frequent: {tuned['baseline']:.1%})",
        f"by {SHIPPED}": f"dev accuracy {accuracy(shipped)} after two epochs on the same labels",
        "time": f"{sum(demo.seconds.values()) / 60:.1f} minutes after installation, "
        f"{demo.seconds['pretraining'] / 60:.1f} of them pretraining",
        "memory": f"{demo.memory_gb:.1f} GB at most in one process",
        "plots": demo.at("pretrained", "plots"),
        "runs": f"{demo.at('pretrained')}, {demo.at('finetuned')}",
        "SavedModels": f"{demo.at('export')}/{{encoder,preprocessing,fill_mask,classifier}}/1",
        "of included models": f"{demo.at('shipped')}/{{fill_mask,embedding,classifier}}/1",
    }
    width = max(map(len, rows))
    lines = [f"{name:<{width}}  {value}" for name, value in rows.items()]
    return "\n".join(["", *lines, "", EXPECTATION_NOTE])


if __name__ == "__main__":
    commands.run(main, DemoOptions, __doc__)
