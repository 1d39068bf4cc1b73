"""The intact files that `mutation_kinds` damages, written by commands where one writes them."""

import bz2
import gzip
import json
import lzma
import pathlib
import shutil
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from albert_tf.convert import __main__ as convert
from albert_tf.export import __main__ as export
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.ranking.model import RankingSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.tokens.model import TokenSettings
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data import build, train_tokenizer
from finetuning import table
from finetuning import train as finetune
from finetuning.datasets.embeddings.teacher_vectors import digest_of
from finetuning.searching.indexing import CorpusToIndex, update_index
from pretraining import evaluate, sweep
from pretraining import train as pretrain
from pretraining.sweeping.plan import SweepOptions
from tests.finetuning.searching.conftest import LetterModel
from tests.finetuning.untrained import leave_pretrained, leave_run, leave_weights

CORPUS = "python_docs:json,argparse"
SCHEDULE = ("optimizer.warmup_steps=1", "loop.steps_per_loop=1", "loop.checkpoint_every=1")
TRAINED = ("model.num_layers=1", "loop.steps=1", *SCHEDULE)
MEMBER = "model.sharing-all_seed-0"  # of the sweep
RESUMED = ("model.sharing=all", "seed=0", *TRAINED)  # its settings
TUNED = ("training.epochs=1", "task.seq_length=32")
TINY = AlbertConfig(200, 4, 8, 1, 2, 8, 40)
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a line ##s of text 2 , . é 漢".split()
TEXT = "A line of texts.\nIn 2,010, 漢 line 2.\n\nAnd é.\nAn end.\n"
QUESTION = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
NO_ANSWER = {"id": "q2", "question": "When?", "answers": [], "is_impossible": True}
PASSAGE = {"context": "Ann met Bo.\nOn 2,010 days.", "qas": [QUESTION, NO_ANSWER]}
EXAMINATION = {
    "article": "Ann met Bo. They ate.",
    "questions": ["Who?", "Bo _ ."],
    "options": [["Ann", "Bo", "C", "D"], ["ate", "left", "sat", "ran"]],
    "answers": ["A", "B"],
    "id": "1.txt",
}
GOOD_AND_BAD = {"sentence_good": "It is.", "sentence_bad": "It are.", "UID": "a"}


class Dataset(NamedTuple):
    """The `task` section of a run on a dataset, None for no run, and its files."""

    section: Any
    files: dict[str, str]


def _table(header: str, pattern: str, *names: str) -> dict[str, str]:
    """Return files with a row for each of nine numbers and their parity."""
    rows = [header, *(pattern.format(i, i % 2) for i in range(9))]
    return dict.fromkeys(names, "\n".join(rows).strip() + "\n")


def _lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


SQUAD2 = json.dumps({"version": "2.0", "data": [{"title": "x", "paragraphs": [PASSAGE]}]})
DATASETS = {
    "text_classification": Dataset(
        ClassifierSettings(seq_length=32, labels=("0", "1")),
        _table("text,label", 'a "line" {0},{1}', "train.csv", "dev.csv"),
    ),
    "text_regression": Dataset(
        RegressorSettings(seq_length=32),
        _table("text\tlabel", "line {0}\t{0}.5", "train.tsv", "dev.tsv"),
    ),
    "multi_label": Dataset(
        MultiLabelSettings(seq_length=32, labels=("x", "y")),
        _table("", '{{"text": "line {0} é", "label": ["x", "y"]}}', "train.jsonl", "dev.jsonl"),
    ),
    "token_classification": Dataset(
        TokenSettings(("A",), seq_length=32),
        _table("", "Ann B-A\nmet O\nBo{0} B-A\n", "train.conll", "dev.conll"),
    ),
    "squad2": Dataset(
        SpanSettings(seq_length=32, query_length=8, doc_stride=8, answerable=True),
        {"train-v2.0.json": SQUAD2, "dev-v2.0.json": SQUAD2},
    ),
    "multiple_choice": Dataset(
        MultipleChoiceSettings(seq_length=32, num_choices=2),
        _table(
            "",
            '{{"question": "Line {0}?", "context": "é", "options": ["x", "y"], "label": {1}}}',
            "train.jsonl",
            "dev.jsonl",
        ),
    ),
    "embedding": Dataset(
        EmbeddingSettings(seq_length=32),
        _table(
            "",
            '{{"query": "line {0}", "passage": "é {1}", "negatives": ["x {0}", "y"]}}',
            "train.jsonl",
            "dev.jsonl",
        ),
    ),
    "ranking": Dataset(
        RankingSettings(seq_length=32),
        _table(
            "",
            '{{"query": "line {0}?", "candidates": '
            '[{{"text": "é", "label": {1}}}, {{"text": "x {0}", "label": 0}}]}}',
            "train.jsonl",
            "dev.jsonl",
        ),
    ),
    "sst-2": Dataset(None, _table("sentence\tlabel", 'a "line {0}\t{1}', "train.tsv", "dev.tsv")),
    "swag": Dataset(
        None,
        _table(
            "sent1,sent2,ending0,ending1,ending2,ending3,label",
            'Ann met Bo.,"She, é",ate,left,sat,ran {0},{1}',
            "train.csv",
            "val.csv",
        ),
    ),
    "race": Dataset(
        None,
        {
            f"{part}/{level}/1.txt": json.dumps(EXAMINATION)
            for part in ("train", "dev")
            for level in ("middle", "high")
        },
    ),
}
ENTITIES = _lines(
    {"text": "Ann met Bo.", "entities": [[0, 3, "A"]]},
    {"text": "é Bo", "entities": [{"start": 2, "end": 4, "label": "A"}]},
)
SEARCH = {
    "corpus.jsonl": _lines(
        {"_id": "d1", "title": "A", "text": "line"}, {"_id": "d2", "text": "é", "title": ""}
    ),
    "queries.jsonl": _lines({"_id": "q1", "text": "A line?"}, {"_id": "q2", "text": "é"}),
    "qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\td2\t1\nq2\td1\t0\n",
}
TAUGHT = ["line", "é", "a text"]
INPUTS = {  # lines to predict
    "text_classification": _lines({"text": "A line"}, {"text": "é", "id": 7}) + "plain\n",
    "squad2": _lines(
        {"question": "Who?", "context": "Ann met Bo."}, {"question": "", "context": ""}
    ),
    "token_classification": _lines({"text": "Ann met Bo.", "id": "a"}, {"text": ""}) + "plain\n",
    "multiple_choice": _lines({"question": "Who?", "options": ["Ann", "Bo"], "context": "é"}),
    "ranking": _lines({"query": "Who?", "candidates": ["Ann", {"text": "é"}]}) + "é\tx\ty\n",
}
CORPORA: dict[str, tuple[str, str]] = {  # the kind of a corpus: its file and the content
    "text": ("text.txt", TEXT),
    "sentences": ("sentences.txt", TEXT),
    "jsonl": ("lines.jsonl", _lines({"text": TEXT}, {"text": "é"})),
    "wikiextractor": ("wiki", f'<doc id="1" title="A">\nA\n\n{TEXT}</doc>\n' * 2),
    "squad": ("squad.json", SQUAD2),
    "race": ("race.txt", json.dumps(EXAMINATION)),
    "markdown": ("text.md", f"# A\n\n{TEXT}\n- b\n\n```\ncode\n```\n"),
}
COMPRESSED: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.compress, gzip.decompress),
    ".bz2": (bz2.compress, bz2.decompress),
    ".xz": (lzma.compress, lzma.decompress),
}


def make_world(world: pathlib.Path) -> None:
    """Write the intact files."""
    world.mkdir()
    _write_texts(world)
    _write_models(world)
    for name, dataset in DATASETS.items():
        for file, content in dataset.files.items():
            _write(world / name / file, content)
        if dataset.section:
            run = leave_run(str(world / "run"), world / f"{name}_run", name, dataset.section)
            leave_weights(run, 1)
    _write(world / "entities" / "train.jsonl", ENTITIES)
    _write(world / "entities" / "dev.jsonl", ENTITIES)
    for file, content in SEARCH.items():
        _write(world / "search" / file, content)
    _write(world / "taught" / "train.csv", "text\n" + "\n".join(TAUGHT) + "\n")
    values = {"count": 3, "width": 4, "sha256": digest_of(TAUGHT)}
    _write(world / "taught" / "train.vectors" / "texts.json", json.dumps(values))
    vectors = np.arange(12, dtype=np.float16).reshape(3, 4)
    np.save(world / "taught" / "train.vectors" / "vectors.npy", vectors)
    corpus = CorpusToIndex(f"text:{world}/text.txt")
    update_index(str(world / "index"), corpus, 4, LetterModel)
    _write_results(world)


def _write(path: pathlib.Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def _write_texts(world: pathlib.Path) -> None:
    _write(world / "text.txt", TEXT)
    _write(world / "words" / "vocab.txt", "\n".join(WORDS))
    for file, content in CORPORA.values():
        _write(world / "corpora" / file, content)
    for suffix, (compress, _) in COMPRESSED.items():
        (world / "corpora" / f"text.txt{suffix}").write_bytes(compress(TEXT.encode()))
    with zipfile.ZipFile(world / "corpora" / "texts.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.txt", "b/é.txt.gz"):
            archive.writestr(name, gzip.compress(TEXT.encode()) if "gz" in name else TEXT)
    import pyarrow.ipc  # not in the processes that commands run in, which choose its memory
    import pyarrow.parquet

    rows = pyarrow.table({"text": [TEXT, "é"] * 9, "label": ["0", "1"] * 9})
    for folder, part in (("corpora", "table"), ("parquet", "train"), ("parquet", "dev")):
        (world / folder).mkdir(exist_ok=True)
        pyarrow.parquet.write_table(rows, world / folder / f"{part}.parquet", row_group_size=5)
    with pyarrow.ipc.new_stream(str(world / "corpora" / "table.arrow"), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=5)
    for task, content in INPUTS.items():
        _write(world / "inputs" / f"{task}.jsonl", content)
    _write(world / "pairs" / "a.jsonl", _lines(GOOD_AND_BAD, GOOD_AND_BAD))


def _write_models(world: pathlib.Path) -> None:
    """Write vocabularies, records, pretrained models in every format, and an export."""
    tokenizer = str(world / "bare")
    train_tokenizer.train_tokenizer(
        train_tokenizer.TrainTokenizerOptions(CORPUS, tokenizer, vocab_size=200)
    )
    for layout in ("compact", "reference"):
        out = str(world / layout)
        build.build(build.BuildOptions(CORPUS, tokenizer, out, 32, layout=layout, num_workers=1))
    run = leave_pretrained(world / "run", TINY, load_tokenizer(tokenizer))
    for name in ("google", "huggingface"):
        convert.main(convert.ConvertOptions(run.path, f"{name}:{world / name}"))
    shutil.copytree(world / "huggingface", world / "fast")
    (world / "fast" / "spiece.model").unlink()
    tokenizer_json = json.dumps(_fast_tokenizer(load_tokenizer(run.path)))
    _write(world / "fast" / "tokenizer.json", tokenizer_json)
    export.main(export.ExportOptions(run.path, str(world / "exported"), "encoder"))
    shutil.rmtree(world / "exported" / "serving")  # this and the next two are not read
    (world / "exported" / "1" / "fingerprint.pb").unlink()
    (world / "exported" / "1" / "assets.extra" / "tf_serving_warmup_requests").unlink()
    (world / "bare" / "albert_tokenizer.json").unlink()  # it has the hash of the model


def _fast_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the pieces as transformers' tokenizer.json has them."""
    pieces = [[piece, -1.0 - i] for i, piece in enumerate(tokenizer.vocabulary.pieces)]
    special = [0, 2, 3, 4]
    return {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "added_tokens": [{"id": i, "content": pieces[i][0], "special": True} for i in special],
        "model": {"type": "Unigram", "unk_id": 1, "vocab": pieces},
    }


def _write_results(world: pathlib.Path) -> None:
    """Write what trained runs leave: a sweep of one run, and a table with one fine-tuned run."""
    sweep.main(sweep_options(world, str(world / "sweep")), _in_process)
    shutil.copytree(world / "sweep" / MEMBER, world / "trained")
    shutil.copytree(world / "trained", world / "interrupted")
    (world / "interrupted" / "result.json").unlink()
    table.main(
        table_options(world, "text_classification", str(world / "table")),
        lambda command: _in_process(*command[1:]) or 0,
    )


def sweep_options(world: pathlib.Path | str, output: str) -> SweepOptions:
    """Return the options of the sweep in the world."""
    data, grid = f"{world}/compact", ("model.sharing=all",)
    return SweepOptions(
        output, grid, experiment="smoke", data=data, heldout=data, device="cpu", set=TRAINED
    )


def table_options(
    world: pathlib.Path | str, task: str, output: str, data: str = "", **others: Any
) -> table.TableOptions:
    """Return the options of the table in the world."""
    given = {"runs": (f"{world}/run",), "part": "train", "device": "cpu", "set": TUNED} | others
    return table.TableOptions(
        tasks=task, data_dir=data or f"{world}/{task}", output=output, **given
    )


def _in_process(module: str, *flags: str) -> None:
    """Run a command that trains or evaluates in this process."""
    program, options = {
        "pretraining.train": (pretrain.main, pretrain.TrainOptions),
        "pretraining.evaluate": (evaluate.main, evaluate.EvaluateOptions),
        "finetuning.train": (finetune.main, finetune.FinetuneOptions),
    }[module]
    program(commands.parse(options, [module, *flags], "", ""))
