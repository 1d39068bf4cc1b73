"""Tests that a fine-tuned model answers in Hugging Face's transformers as it does here.

Both directions, every kind, with the published vocabulary; transformers in a process of its own.
"""

import dataclasses
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import load_tokenizer
from albert_tf.convert import native
from albert_tf.convert.__main__ import ConvertOptions, main
from albert_tf.convert.bundle import Bundle, weight_shapes
from albert_tf.convert.huggingface import folder as huggingface
from albert_tf.models.config import AlbertConfig
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.predictor import load_task_model
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.ranking.model import RankingSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanModel, SpanSettings
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.model import TokenSettings
from tests.albert_tf.convert.huggingface_test import torch_python  # noqa: F401

TOLERANCE = 2e-5
LABELS = ("contradiction", "entailment", "neutral")
SETTINGS = {
    "classifier": ClassifierSettings(LABELS, pair=True),
    "multi_label": MultiLabelSettings(("joy", "love"), (0.25, 0.5)),
    "regressor": RegressorSettings(center=2.5, scale=1.5),
    "span": SpanSettings(seq_length=64, doc_stride=16),
    "multiple_choice": MultipleChoiceSettings(seq_length=64, num_choices=3, qa_length=32),
    "token_classifier": TokenSettings(("place", "person")),
    "ranking": RankingSettings(),
}
# No number with a comma: the tokenizer of transformers 5 lacks ALBERT's rule for those.
SHORT = "Sentences of one batch have different lengths, so the short ones are padded."
LONG = (
    "ALBERT shares one block of weights among all of its layers, factorizes the table of word "
    "embeddings, and learns in what order two segments stood. Its authors trained it with LAMB on "
    "Wikipedia and on books, 4096 sequences of 512 pieces at a time."
)
EXAMPLES = {
    "classifier": [TextExample(SHORT, LONG), TextExample("naïve “quotes”?", "No.")],
    "multi_label": [TextExample(LONG), TextExample(SHORT)],
    "regressor": [TextExample(LONG), TextExample(SHORT)],
    "span": [SpanExample("What do layers share?", LONG), SpanExample("What is padded?", SHORT)],
    "multiple_choice": [
        ChoiceExample("The authors used _ .", LONG, ("LAMB", "SGD without momentum", "Adam")),
        ChoiceExample("What is padded?", SHORT, ("short sentences", "long ones", "nothing")),
    ],
    "token_classifier": [TokenExample(LONG), TokenExample(SHORT)],
    "ranking": [RankingExample(SHORT, (LONG,)), RankingExample("naïve “quotes”?", ("No.",))],
}
TINY = AlbertConfig(
    embedding_size=32,
    hidden_size=48,
    num_layers=4,
    num_groups=2,
    num_heads=4,
    intermediate_size=96,
    max_positions=128,
    initializer_range=0.2,
)
MODELS = {"tiny": TINY, "base": AlbertConfig.from_preset("albert-base-v2")}

# FOLDER is loaded, or made of its config.json, asked, and saved as FOLDER/saved.
ASK = """
import json, pathlib, sys, numpy as np, torch, transformers
names = {"input_ids": "input_word_ids", "attention_mask": "input_mask",
         "token_type_ids": "input_type_ids"}
for folder in map(pathlib.Path, sys.argv[1:]):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind, info = getattr(transformers, config.architectures[0]), {}
    if (folder / "model.safetensors").exists():
        model, info = kind.from_pretrained(folder, output_loading_info=True)
    else:
        torch.manual_seed(0)
        model = kind(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * config.initializer_range / 2)
    wrong = {name: list(info.get(name) or ()) for name in
             ("missing_keys", "unexpected_keys", "mismatched_keys")}
    inputs = dict(np.load(folder / "inputs.npz"))
    batch = {theirs: torch.tensor(inputs[ours]).long() for theirs, ours in names.items()}
    outputs = model.eval()(**batch)
    values = {name: value.detach().numpy() for name, value in outputs.items()}
    np.savez(folder / "outputs.npz", **values)
    model.save_pretrained(folder / "saved")
    report = {"wrong": wrong, "labels": config.num_labels, "type": config.problem_type,
              "kept": getattr(model.config, "albert_tf_task", None)}
    if "texts" in inputs:
        rows = transformers.AutoTokenizer.from_pretrained(folder)(*inputs["texts"].tolist())
        report |= {"ids": rows["input_ids"], "types": rows["token_type_ids"]}
    (folder / "report.json").write_text(json.dumps(report))
"""


def ask(python: list[str], *folders: pathlib.Path) -> None:
    # sentencepiece's generated code is newer than the protobuf that TensorFlow asks for.
    environment = os.environ | {"TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK": "true"}
    subprocess.run([*python, "-c", ASK, *map(str, folders)], check=True, env=environment)


def inputs_of(task, tokenizer) -> dict[str, np.ndarray]:
    """Two examples; the shorter one is padded, and so are options."""
    features = KINDS[task.kind].featurize(EXAMPLES[task.kind], tokenizer, task)
    batch, _ = features.batch(tf.range(2))
    inputs = {name: value.numpy() for name, value in batch.items()}
    assert 0 < inputs["input_mask"].mean() < 1
    return inputs


def logits_of(model, inputs) -> dict[str, np.ndarray]:
    """What a task model computes, under transformers' names and in its shapes."""
    if isinstance(model, SpanModel):
        hidden = model.encoder(inputs)["sequence_output"]
        start, end = tf.unstack(model.head.dense(hidden), axis=-1)
        return {"start_logits": start.numpy(), "end_logits": end.numpy()}
    logits = model(inputs).numpy()
    return {"logits": logits[:, None] if logits.ndim == 1 else logits}


def must_agree(folder: pathlib.Path, model, inputs, kind: str) -> None:
    with np.load(folder / "outputs.npz") as file:
        theirs = dict(file)
    ours = logits_of(model, inputs)
    assert theirs.keys() == ours.keys()
    mask = inputs["input_mask"]  # what padding computes reaches nothing
    real = {"span": mask, "token_classifier": mask[..., None]}.get(kind, 1)
    for name, values in ours.items():
        difference = np.abs(values * real - theirs[name] * real).max()
        print(f"{kind} {name}: largest {np.abs(values).max():.3g}, difference {difference:.2g}")
        assert np.std(values * real) > 1e-3
        assert difference < TOLERANCE, (kind, name)


def convert(source: str, target: str, *values: str) -> None:
    main(ConvertOptions(source, target, set=values))


@pytest.fixture(scope="module")
def tokenizer(shared_data):
    return load_tokenizer(str(shared_data / "vocab" / "albert_en_30k" / "spiece.model"))


@pytest.mark.slow
@pytest.mark.parametrize("size", MODELS)
def test_ours_answers_there(size, tokenizer, torch_python, tmp_path):  # noqa: F811
    config, inputs = MODELS[size], {}
    rng = np.random.default_rng(3)
    for kind, task in SETTINGS.items():
        weights = {
            name: rng.normal(name.endswith("/gamma"), config.initializer_range, shape)
            for name, shape in weight_shapes(config, task).items()
        }
        weights = {name: value.astype(np.float32) for name, value in weights.items()}
        (tmp_path / "ours" / kind).mkdir(parents=True)
        bundle = Bundle(config, weights, tokenizer, task)
        native.write(bundle, str(tmp_path / "ours" / kind))
        convert(str(tmp_path / "ours" / kind), f"huggingface:{tmp_path / kind}")
        inputs[kind] = inputs_of(task, tokenizer)
        texts = dataclasses.astuple(EXAMPLES["classifier"][0])[:2]
        np.savez(tmp_path / kind / "inputs.npz", texts=np.array(texts), **inputs[kind])
    ask(torch_python, *(tmp_path / kind for kind in SETTINGS))
    for kind, task in SETTINGS.items():
        report = json.loads((tmp_path / kind / "report.json").read_text())
        assert not any(report["wrong"].values()), report["wrong"]
        assert report["kept"]["kind"] == kind
        first = inputs["classifier"]["input_mask"][0] == 1
        assert report["ids"] == inputs["classifier"]["input_word_ids"][0][first].tolist()
        assert report["types"] == inputs["classifier"]["input_type_ids"][0][first].tolist()
        model = load_task_model(str(tmp_path / "ours" / kind))
        must_agree(tmp_path / kind, model, inputs[kind], kind)
        convert(f"huggingface:{tmp_path / kind / 'saved'}", str(tmp_path / "back" / kind))
        back = load_task_model(str(tmp_path / "back" / kind))
        assert back.task == task
        must_agree(tmp_path / kind, back, inputs[kind], kind)


@pytest.mark.slow
@pytest.mark.parametrize("size", MODELS)
def test_theirs_answers_here(size, tokenizer, torch_python, tmp_path):  # noqa: F811
    """Folders with what transformers itself writes of a model: nothing of ours."""
    heads = {
        "classifier": ("AlbertForSequenceClassification", {"id2label": dict(enumerate(LABELS))}),
        "multi_label": (
            "AlbertForSequenceClassification",
            {"num_labels": 2, "problem_type": "multi_label_classification"},
        ),
        "regressor": ("AlbertForSequenceClassification", {"num_labels": 1}),
        "span": ("AlbertForQuestionAnswering", {}),
        "multiple_choice": ("AlbertForMultipleChoice", {}),
        "token_classifier": (
            "AlbertForTokenClassification",
            {"id2label": dict(enumerate(SETTINGS["token_classifier"].tags))},
        ),
        "ranking": (
            "AlbertForSequenceClassification",
            {"num_labels": 1, "sentence_transformers": {"version": "6.2.0"}},
        ),
    }
    tasks = SETTINGS | {"regressor": RegressorSettings()}
    inputs = {kind: inputs_of(task, tokenizer) for kind, task in tasks.items()}
    for kind, (architecture, values) in heads.items():
        (tmp_path / kind).mkdir()
        keys = huggingface.to_json(MODELS[size]) | values | {"architectures": [architecture]}
        (tmp_path / kind / "config.json").write_text(json.dumps(keys))
        np.savez(tmp_path / kind / "inputs.npz", **inputs[kind])
    ask(torch_python, *(tmp_path / kind for kind in heads))
    settings = {"classifier": ("task.pair=true",), "multiple_choice": ("task.num_choices=3",)}
    for kind in heads:
        saved, ours = tmp_path / kind / "saved", str(tmp_path / "ours" / kind)
        tokenizer.save(str(saved))
        convert(f"huggingface:{saved}", ours, *settings.get(kind, ()))
        model = load_task_model(ours)
        must_agree(tmp_path / kind, model, inputs[kind], kind)
        if kind == "classifier":
            assert model.task.labels == LABELS
