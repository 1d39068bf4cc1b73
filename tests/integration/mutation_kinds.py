"""The kinds of files that commands read, intact, and for each the commands that read all of it."""

import json
import pathlib
import random
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.convert import __main__ as convert
from albert_tf.models.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import settings
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.tokens.model import TokenSettings
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data import build, import_records, show_records, train_tokenizer
from finetuning import predict
from finetuning import train as finetune
from pretraining import evaluate
from pretraining import train as pretrain
from tests.finetuning.untrained import leave_run, leave_weights
from tests.integration.mutants import Change, any_bytes, json_tree, record_content, tensor_header

CORPUS = "python_docs:json,argparse"
SCHEDULE = ("optimizer.warmup_steps=1", "loop.steps_per_loop=1", "loop.checkpoint_every=1")
TINY = AlbertConfig(200, 4, 8, 1, 2, 8, 40)
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a line ##s of text 2 , . é 漢".split()
QUESTION = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
NO_ANSWER = {"id": "q2", "question": "When?", "answers": [], "is_impossible": True}
PASSAGE = {"context": "Ann met Bo.\nOn 2,010 days.", "qas": [QUESTION, NO_ANSWER]}
TABLES = {  # the dataset: the section of a run on it, its file, a header, a pattern of its rows
    "text_classification": (
        ClassifierSettings(seq_length=32, labels=("0", "1")),
        "train.csv",
        "text,label",
        'a "line" {0},{1}',
    ),
    "text_regression": (
        RegressorSettings(seq_length=32),
        "train.tsv",
        "text\tlabel",
        "line {0}\t{0}.5",
    ),
    "multi_label": (
        MultiLabelSettings(seq_length=32, labels=("x", "y")),
        "train.jsonl",
        "",
        '{{"text": "line {0} é", "label": ["x", "y"]}}',
    ),
    "token_classification": (
        TokenSettings(("A",), seq_length=32),
        "train.conll",
        "",
        "Ann B-A\nmet O\nBo{0} B-A\n",
    ),
    "squad2": (
        SpanSettings(seq_length=32, query_length=8, doc_stride=8, answerable=True),
        "train-v2.0.json",
        json.dumps({"version": "2.0", "data": [{"title": "x", "paragraphs": [PASSAGE]}]}),
        "",
    ),
}


def make_world(world: pathlib.Path) -> None:
    """Write the intact files."""
    world.mkdir()
    tokenizer = str(world / "bare")
    train_tokenizer.train_tokenizer(
        train_tokenizer.TrainTokenizerOptions(CORPUS, tokenizer, vocab_size=200)
    )
    for layout in ("compact", "reference"):
        out = str(world / layout)
        build.build(build.BuildOptions(CORPUS, tokenizer, out, 32, layout=layout, num_workers=1))
    run = RunDir(str(world / "run"))
    config = {"model": settings.to_dict(TINY), "task": {"kind": "pretraining"}}
    run.begin(config, load_tokenizer(tokenizer))
    model = AlbertPretrainer(TINY).create_weights()
    tf.train.Checkpoint(model=model).save(f"{run.checkpoints_path}/ckpt")
    run.finish({})
    for name in ("google", "huggingface"):
        convert.main(convert.ConvertOptions(run.path, f"{name}:{world / name}"))
    shutil.copytree(world / "huggingface", world / "fast")
    (world / "fast" / "spiece.model").unlink()
    tokenizer_json = json.dumps(_fast_tokenizer(load_tokenizer(run.path)))
    (world / "fast" / "tokenizer.json").write_text(tokenizer_json)
    trained, shape = str(world / "trained"), ("model.num_layers=1", "loop.steps=1", *SCHEDULE)
    pretrain.main(
        pretrain.TrainOptions(str(world / "compact"), trained, "smoke", device="cpu", set=shape)
    )
    (world / "bare" / "albert_tokenizer.json").unlink()  # it has the hash of the model
    (world / "words").mkdir()
    (world / "words" / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    (world / "text.txt").write_text("A line of texts.\nIn 2,010, 漢 line 2.\n\nAnd é.\nAn end.\n")
    for name, (section, file, header, row) in TABLES.items():
        task_run = leave_run(run.path, world / f"{name}_run", name, section)
        leave_weights(task_run, 1)
        (world / name).mkdir()
        text = "\n".join([header, *(row.format(i, i % 2) for i in range(9))])
        for part in (file, file.replace("train", "dev")):
            (world / name / part).write_text(text.strip() + "\n", encoding="utf-8")


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


class Place(NamedTuple):
    """Folders: the intact files, a copy of one of their folders with the mutant, an empty one."""

    world: str
    damaged: str
    empty: str


Command = Callable[[Place], object]


def converting(kind: str) -> Command:
    """Return the command that converts a folder of a kind, such as "google:"."""
    return lambda at: convert.main(
        convert.ConvertOptions(f"{kind}{at.damaged}", f"{at.empty}/new", dry_run=True)
    )


def building(at: Place) -> None:
    """Tokenize a text."""
    corpus, out = f"text:{at.world}/text.txt", f"{at.empty}/new"
    build.build(build.BuildOptions(corpus, at.damaged, out, 16, num_workers=1))


def showing(at: Place) -> None:
    """Read records."""
    show_records.show_records(show_records.ShowRecordsOptions(at.damaged))


def importing(at: Place) -> None:
    """Import the records as those of another project."""
    files, tokenizer = f"{at.damaged}/{SHARD}", f"{at.world}/bare"
    import_records.import_records(
        import_records.ImportOptions(files, tokenizer, f"{at.empty}/new", dry_run=True)
    )


def pretraining(at: Place) -> None:
    """Check records, and plan a run on them."""
    pretrain.main(
        pretrain.TrainOptions(at.damaged, f"{at.empty}/new", "smoke", device="cpu", dry_run=True)
    )


def evaluating(at: Place) -> None:
    """Check a pretraining run, and plan its evaluation."""
    data, out = f"{at.world}/compact", f"{at.empty}/new.json"
    options = evaluate.EvaluateOptions(at.damaged, data, output=out, device="cpu", dry_run=True)
    evaluate.main(options)


def predicting(at: Place) -> None:
    """Load a fine-tuned run."""
    out = f"{at.empty}/new"
    predict.main(predict.PredictOptions(at.damaged, f"{at.world}/text.txt", out, dry_run=True))


def reading(task: str) -> tuple[Command, ...]:
    """Return the commands that read the training part of a dataset."""

    def part(at: Place) -> None:
        predict.main(
            predict.PredictOptions(
                f"{at.world}/{task}_run", data_dir=at.damaged, part="train", dry_run=True
            )
        )

    def whole(at: Place) -> None:
        given = ("task.seq_length=32",)
        out, init = f"{at.empty}/new", f"{at.world}/run"
        finetune.main(
            finetune.FinetuneOptions(
                task, out, at.damaged, init=init, device="cpu", dry_run=True, set=given
            )
        )

    return part, part, whole, part, part


class Kind(NamedTuple):
    """A file, the commands that read it in turn, and a change that keeps its outer form."""

    file: str
    commands: tuple[Command, ...]
    change: Change = any_bytes


def _in_front(content: bytes, rng: random.Random) -> bytes:
    """Change only the pieces of a sentencepiece model, which precede the map of characters."""
    return any_bytes(content[:3000], rng) + content[3000:]


FROM_OURS, FROM_GOOGLE, FROM_HUGGINGFACE = map(converting, ("", "google:", "huggingface:"))
RUN, SHARD = (predicting, FROM_OURS), "records-00000-of-00001.tfrecord"
WEIGHTS = "checkpoints/ckpt-1"
KINDS = {
    "config": Kind("run/config.json", (FROM_OURS,), json_tree),
    **{f"{task} run": Kind(f"{task}_run/config.json", RUN, json_tree) for task in TABLES},
    "trained": Kind("trained/config.json", (evaluating, FROM_OURS), json_tree),
    "tokenizer.json": Kind("fast/tokenizer.json", (FROM_HUGGINGFACE,), json_tree),
    "tokenizer": Kind("run/tokenizer/albert_tokenizer.json", (FROM_OURS,), json_tree),
    "google": Kind("google/albert_config.json", (FROM_GOOGLE,), json_tree),
    "huggingface": Kind("huggingface/config.json", (FROM_HUGGINGFACE,), json_tree),
    "rules": Kind("huggingface/tokenizer_config.json", (FROM_HUGGINGFACE,), json_tree),
    "manifest": Kind("compact/manifest.json", (pretraining, showing, pretraining), json_tree),
    "spiece.model": Kind("bare/spiece.model", (building,), _in_front),
    "vocab.txt": Kind("words/vocab.txt", (building,)),
    "index": Kind(f"text_classification_run/{WEIGHTS}.index", RUN),
    "data": Kind(f"text_classification_run/{WEIGHTS}.data-00000-of-00001", RUN),
    "checkpoint": Kind("text_classification_run/checkpoints/checkpoint", RUN),
    "google index": Kind("google/model.ckpt-best.index", (FROM_GOOGLE,)),
    "safetensors": Kind("huggingface/model.safetensors", (FROM_HUGGINGFACE,), tensor_header),
    "compact": Kind(f"compact/{SHARD}", (showing, pretraining, pretraining), record_content),
    "reference": Kind(f"reference/{SHARD}", (showing, importing), record_content),
    **{task: Kind(f"{task}/{table[1]}", reading(task)) for task, table in TABLES.items()},
    "squad2": Kind("squad2/train-v2.0.json", reading("squad2"), json_tree),
}
