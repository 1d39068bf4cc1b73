"""Tests that the model computes what Hugging Face's torch AlbertForPreTraining does.

Golden files, made by tests/golden/make_huggingface.py, in every run; torch itself in the slow ones.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, MismatchPolicy, weight_shapes
from albert_tf.convert.huggingface import folder as huggingface
from albert_tf.convert.huggingface import tokenizer as huggingface_tokenizer
from albert_tf.models.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.typography import DOUBLE_PRIMES, fold_punctuation, folded_primes
from tests.golden import make_huggingface as golden

BASE = {
    "vocab_size": 30000,
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu_new",
}
LIVE = {
    "tiny": golden.CASES["gelu_groups"],
    "unshared": golden.CASES["relu"] | {"num_hidden_groups": 4, "layer_norm_eps": 1e-6},
    "no_factors": golden.CASES["relu"] | {"embedding_size": 16},
    "base": BASE,
    "base_relu_groups": BASE | {"num_hidden_groups": 3, "hidden_act": "relu"},
}


def section(reference: dict, name: str) -> dict[str, np.ndarray]:
    head = f"{name}/"
    return {key[len(head) :]: reference[key] for key in reference if key.startswith(head)}


def model_of(reference: dict) -> AlbertPretrainer:
    config = huggingface.read_config(json.loads(str(reference["config"])), "the reference")
    weights = huggingface.to_ours(config, section(reference, "weights"), MismatchPolicy(), "it")
    model = AlbertPretrainer(config).create_weights()
    for name, value in weights.items():
        native.variable(model, name).assign(value)
    return model


def loss_of(outputs: dict, inputs: dict) -> tf.Tensor:
    ce = tf.nn.sparse_softmax_cross_entropy_with_logits
    mlm = ce(inputs["masked_lm_ids"], outputs["mlm_logits"])
    weights = inputs["masked_lm_weights"]
    pair = ce(inputs["pair_label"], outputs["pair_logits"])
    return tf.reduce_sum(mlm * weights) / tf.reduce_sum(weights) + tf.reduce_mean(pair)


def must_agree(reference: dict, atol: float = 2e-5, rtol: float = 1e-4) -> None:
    """Outputs within `atol` everywhere; each weight's gradient within `rtol` of its norm."""
    model, inputs = model_of(reference), section(reference, "inputs")
    names = list(weight_shapes(model.config))
    variables = [native.variable(model, name) for name in names]
    with tf.GradientTape() as tape:
        outputs = model(inputs)
        loss = loss_of(outputs, inputs)
    gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)]
    real = inputs["input_mask"][..., None]  # [B, S, 1]: what padding computes reaches nothing
    for name, theirs in section(reference, "outputs").items():
        ours = loss if name == "loss" else outputs[name]
        seen = real if name == "sequence_output" else 1
        np.testing.assert_allclose(ours * seen, theirs * seen, rtol=0, atol=atol, err_msg=name)
    theirs = gradients_in_our_names(model.config, reference)
    whole = np.sqrt(sum(np.sum(g**2) for g in theirs.values()))
    for name, mine in zip(names, gradients, strict=True):
        error, norm = np.linalg.norm(mine - theirs[name]), np.linalg.norm(theirs[name])
        if name.endswith(
            "/key/bias"
        ):  # the softmax takes no notice of it: rounding is all there is
            assert max(norm, np.linalg.norm(mine)) < 1e-5 * whole, name
        else:
            assert error < rtol * norm, f"{name}: {error} of {norm}"


def gradients_in_our_names(config: AlbertConfig, reference: dict) -> dict[str, np.ndarray]:
    gradients = section(reference, "gradients")
    if config.embedding_size == config.hidden_size:  # by their identity, which ours lacks
        for leaf in ("weight", "bias"):
            del gradients[f"{huggingface.PROJECTION}.{leaf}"]
    return huggingface.NAMING.to_ours(config, gradients, MismatchPolicy(), "it")


@pytest.mark.parametrize("case", golden.CASES)
def test_golden_numbers_of_torch(case):
    with np.load(golden.GOLDEN / f"huggingface_{case}.npz") as file:
        reference = dict(file)
    assert np.std(reference["outputs/mlm_logits"]) > 0.1
    must_agree(reference)


@pytest.fixture
def torch_python() -> list[str]:
    """The command of a Python of its own for torch: with TensorFlow in one process it can crash."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is absent: install requirements-slow.txt")
    return [sys.executable]


@pytest.mark.slow
@pytest.mark.parametrize("case", LIVE)
def test_live_numbers_of_torch(case, torch_python, tmp_path):
    length = 64 if case.startswith("base") else 12
    arguments = [json.dumps(LIVE[case]), str(length), str(tmp_path / "reference.npz")]
    subprocess.run([*torch_python, golden.__file__, *arguments], check=True)
    # Where ReLU's input is nearly 0, rounding decides whether a gradient passes.
    rtol = 1e-3 if "relu" in case else 1e-4
    with np.load(tmp_path / "reference.npz") as reference:
        must_agree(dict(reference), rtol=rtol)


LOAD = """
import json, sys, torch, transformers
kind = transformers.AlbertForPreTraining
model, info = kind.from_pretrained(sys.argv[1], output_loading_info=True)
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
model.save_pretrained(sys.argv[2])
torch.save(model.state_dict(), sys.argv[2] + "/pytorch_model.bin")
print(json.dumps({
    "missing": list(info["missing_keys"]), "unexpected": list(info["unexpected_keys"]),
    "mismatched": list(info["mismatched_keys"]), "ids": tokenizer(sys.argv[3])["input_ids"],
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"sharing": "none"}, {"embedding_size": 32, "activation": "relu"}]
)
def test_transformers_loads_what_we_write(changes, tiny, small_tokenizer, torch_python, tmp_path):
    config, text = tiny.replace(**changes), "The file is opened and the value is returned."
    rng = np.random.default_rng(1)
    weights = {
        n: rng.normal(0, 0.2, s).astype(np.float32) for n, s in weight_shapes(config).items()
    }
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    huggingface.write(Bundle(config, weights, small_tokenizer), str(ours))
    done = subprocess.run(
        [*torch_python, "-c", LOAD, str(ours), str(theirs), text],
        check=True,
        capture_output=True,
        text=True,
        # sentencepiece's generated code is newer than the protobuf that TensorFlow asks for.
        env=os.environ | {"TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK": "true"},
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.pop("ids") == [2, *small_tokenizer.encode(text), 3]
    assert report == {"missing": [], "unexpected": [], "mismatched": []}
    for _ in ("safetensors", "bin"):  # what they save again, in both forms
        again = huggingface.read(str(theirs), MismatchPolicy())
        assert again.config == config.replace(initializer_range=0.2)
        for name, value in weights.items():
            np.testing.assert_array_equal(again.weights[name], value)
        (theirs / "model.safetensors").unlink(missing_ok=True)
    file = theirs / "pytorch_model.bin"
    for content in (file.read_bytes()[:1000], b"torn", b""):
        file.write_bytes(content)
        with pytest.raises(InputError, match="not a readable file of torch tensors"):
            huggingface.read(str(theirs), MismatchPolicy())


TOKENIZE = """
import json, sys, tokenizers, transformers
texts = json.load(open(sys.argv[2]))
theirs = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
raw = tokenizers.Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
pair = theirs("a", "b")
print(json.dumps({
    "theirs": [theirs(text)["input_ids"] for text in texts],
    "raw": [encoding.ids for encoding in raw.encode_batch(texts)],
    "types": pair["token_type_ids"],
    "back": theirs.decode(theirs("well-known")["input_ids"], skip_special_tokens=True),
}))
"""
# Of several segmentations of equal score, theirs may choose another one; these texts have none.
TYPOGRAPHIC = [
    *"‘’‚‛′‵″‶ʼ“”„‟‐‑‒–—―−⸺⸻•‣⁃◦∙▪",
    *'abcdw x"-*(). 5',
    "é",
    "don’t ",
    "  ",
    "ﬁ",
    "﹘",
    "½ ",
]


@pytest.mark.slow
@pytest.mark.parametrize("folds", [False, True])  # whether the model has a rule for ″
@pytest.mark.parametrize("accents", [True, False])
def test_their_tokenizer_cuts_as_ours(accents, folds, small_tokenizer, tmp_path):
    """Also at the vocabulary's user-defined pieces, such as - and ."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is absent: install requirements-slow.txt")
    rules = Normalization(strip_accents=accents)
    source = small_tokenizer if folds else load_tokenizer("albert-mini-en")
    tokenizer = Tokenizer(fold_punctuation(source.model), rules)
    assert (folded_primes(tokenizer.model) == [*DOUBLE_PRIMES]) == folds
    rng = random.Random(0)
    texts = ["".join(rng.choices(TYPOGRAPHIC, k=rng.randint(0, 30))) for _ in range(1000)]
    huggingface_tokenizer.write(tokenizer, str(tmp_path), 512)
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    done = subprocess.run(
        [sys.executable, "-c", TOKENIZE, str(tmp_path), str(tmp_path / "texts.json")],
        check=True,
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    wanted = [[2, *ids, 3] for ids in tokenizer.encode_batch(texts)]
    assert report["raw"] == report["theirs"] == wanted
    first, second = (len(tokenizer.encode(text)) for text in "ab")
    assert report["types"] == [0] * (first + 2) + [1] * (second + 1)
    assert report["back"] == "well-known"
