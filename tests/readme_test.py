"""README and docs/: every command parses; those of the two first pages run in the slow suite."""

import importlib
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands
from data.corpora.corpus import KINDS, read_documents

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
PAGES["README"] = (ROOT / "README.md").read_text(encoding="utf-8")
OPTIONS = {
    "albert_tf.convert": "ConvertOptions",
    "albert_tf.export": "ExportOptions",
    "albert_tf.info": "InfoOptions",
    "benchmarks.cosine": "CosineOptions",
    "benchmarks.data_build": "DataBuildOptions",
    "benchmarks.embedding": "EmbeddingBenchmarkOptions",
    "benchmarks.latency": "LatencyOptions",
    "benchmarks.load": "LoadOptions",
    "benchmarks.search": "SearchBenchmarkOptions",
    "benchmarks.serving": "ServingOptions",
    "benchmarks.step_time": "StepTimeOptions",
    "benchmarks.tpu_step": "TpuCheckOptions",
    "data.build": "BuildOptions",
    "data.import_records": "ImportOptions",
    "data.clean": "CleanOptions",
    "data.pairs": "PairsOptions",
    "data.show_records": "ShowRecordsOptions",
    "data.train_tokenizer": "TrainTokenizerOptions",
    "examples.search": "SearchOptions",
    "finetuning.compare": "CompareOptions",
    "finetuning.depth": "DepthOptions",
    "finetuning.distill": "DistillOptions",
    "finetuning.embed": "EmbedOptions",
    "finetuning.ensemble": "EnsembleOptions",
    "finetuning.learning_curve": "LearningCurveOptions",
    "finetuning.mine": "MineOptions",
    "finetuning.predict": "PredictOptions",
    "finetuning.table": "TableOptions",
    "finetuning.train": "FinetuneOptions",
    "pretraining.adapt": "AdaptOptions",
    "pretraining.evaluate": "EvaluateOptions",
    "pretraining.experiments": "ListOptions",
    "pretraining.similarity": "SimilarityOptions",
    "pretraining.sweep": "SweepOptions",
    "pretraining.tpu_check": "TpuCheckOptions",
    "pretraining.train": "TrainOptions",
}


POSITIONAL = {"data.show_records": "data", "examples.search": "action"}


def options_of(module: str) -> type:
    home = f"{module}.__main__" if module in ("albert_tf.convert", "albert_tf.export") else module
    return getattr(importlib.import_module(home), OPTIONS[module])


def commands_of(page: str) -> list[str]:
    """The commands in the code blocks of a page, a line each."""
    found = re.findall(r"```(\w*)\n(.*?)```", PAGES[page], re.DOTALL)
    blocks = [block for language, block in found if language in ("", "bash")]
    lines: list[str] = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(blocks)).splitlines():
        if lines and lines[-1].count("'") % 2:  # inside a quotation
            lines[-1] += f" {line.strip()}"
        elif line.startswith("python -"):  # comments may hold an apostrophe
            lines.append(line.split("  #")[0].strip())
    return lines


@pytest.mark.parametrize("page", sorted(PAGES))  # but not those of the log, which has old ones
def test_every_command_parses(page: str):
    for command in commands_of(page):
        words = shlex.split(command)
        if words[1] == "-m" and words[2] in OPTIONS:
            options = words[2:], "", words[2], POSITIONAL.get(words[2], "")
            parsed = commands.parse(options_of(words[2]), *options)
            assert isinstance(parsed, options_of(words[2])), command
        elif words[1:3] == ["-m", "pytest"]:
            files = [word for word in words if word.endswith(".py")]
            assert files and all((ROOT / file).is_file() for file in files), command
        elif not words[2].startswith("apache_beam"):
            path = words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[2]
            assert (ROOT / path).is_file(), command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Some text under corpus/ and labelled reviews, as README assumes."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "corpus").mkdir()
    packages = "python_docs:email,logging,unittest,asyncio,json,argparse,collections,tkinter"
    documents = list(read_documents(packages))
    for part in range(2):
        text = "\n\n".join("\n".join(d.sentences) for d in documents[part::2])
        (folder / "corpus" / f"{part}.txt").write_text(text, encoding="utf-8")
    (folder / "reviews").mkdir()
    rows = "text\tlabel\n" + "good and kind\tyes\nbad and slow\tno\n" * 20
    for name in ("train.tsv", "dev.tsv"):
        (folder / "reviews" / name).write_text(rows, encoding="utf-8")
    for name in ("albert_tf", "data", "pretraining", "finetuning", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.mark.slow
def test_the_first_pages_run_as_written(folder: pathlib.Path):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    snippets = re.findall(r"```python\n(.*?)```", PAGES["python.md"], re.DOTALL)
    runs = ("load_predictor", "load_ranker")  # see ask_test.py and ranker_test.py
    snippets = [each for each in snippets if not any(name in each for name in runs)]
    programs = [shlex.split(c)[1:] for page in ("README", "python.md") for c in commands_of(page)]
    assert len(programs) == 12 and len(snippets) == 6
    for words in [*programs, *(["-c", snippet] for snippet in snippets)]:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stderr[-1500:]}"
        assert "Traceback" not in done.stderr
    assert (folder / "export" / "reviews" / "1" / "saved_model.pb").is_file()


@pytest.mark.slow
def test_readme_prints_what_it_says():
    """Its Python, which one process runs, up to the SavedModel of a reader's own run."""
    blocks = re.findall(r"```python\n(.*?)```", PAGES["README"], re.DOTALL)
    program = "".join(block for block in blocks if "print(" in block and "load_" in block)
    said = re.findall(r"^# (.*?)(?:   \(.*)?$", program, re.M)
    assert len(said) == 4
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == said, done.stderr[-1500:]


def test_the_table_of_corpora_is_true():
    rows = re.findall(r"^\| .* \| `(--corpus.*)` \|$", PAGES["data.md"], re.M)
    assert len(rows) == 17
    for row in rows:
        flags = shlex.split(row.replace("\\|", "|"))
        needed = ["--output=o", "--tokenizer=t"]
        options = commands.parse(options_of("data.build"), ["build", *flags, *needed], "", "")
        commands.parse(options_of("data.train_tokenizer"), ["train", *flags, needed[0]], "", "")
        assert options.corpus.partition(":")[0] in KINDS
        kind, _, expression = options.document_boundary.partition(":")
        assert kind in ("blank_line", "file", "regex")
        re.compile(expression)


def test_the_preset_table_is_true():
    pattern = r"^\| `albert-(\w+?)(?:-v1)?`.*\| ([\d,]+) \| ([\d,]+)(?: \(`bert-\w+`\))? \|$"
    rows = re.findall(pattern, PAGES["models.md"], re.M)
    assert [name for name, *_ in rows] == ["tiny", "base", "large", "xlarge", "xxlarge"]
    for name, encoder, unshared in rows:
        config = AlbertConfig.from_preset("albert-tiny" if name == "tiny" else f"albert-{name}-v2")
        assert f"{config.param_count():,}" == encoder
        bert = config.replace(sharing="none", embedding_size=config.hidden_size)
        assert f"{bert.param_count():,}" == unshared


def test_every_link_leads_somewhere():
    cards = (ROOT / "albert_tf" / "pretrained").glob("*/README.md")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *cards):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", prose(path)):
            page = path.parent / target if target else path
            assert page.exists(), f"{path.name}: {target}"
            assert not anchor or anchor in anchors(page), f"{path.name}: {target}#{anchor}"


def test_the_findings_stay_short_and_lead_to_the_log():
    assert len(PAGES["findings.md"].splitlines()) <= 250
    logs = {path.name: path for path in (ROOT / "docs" / "log").glob("*.md")}
    assert set(re.findall(r"\]\((\w+\.md)\)", prose(logs.pop("README.md")))) == set(logs)
    for path in logs.values():
        lines = path.read_text(encoding="utf-8").splitlines()
        dates = [re.findall(r"\d{4}-\d\d-\d\d", line)[-1] for line in lines if line[:3] == "## "]
        assert dates == sorted(dates, reverse=True) and len(lines) <= 400, path.name


def prose(path: pathlib.Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(path: pathlib.Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
