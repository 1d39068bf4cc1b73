"""A model of 16 bits in the package's folder is found by its name, in Python and by commands."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.convert import __main__ as convert
from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import InputError, InputNotFoundError

NAME = "albert-of-a-test"


@pytest.fixture
def shipped(smoke_run: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The run whose weights a model of that name has, halved."""
    folder = tmp_path / "pretrained" / NAME
    convert.main(convert.ConvertOptions(smoke_run, str(folder), half_precision=True))
    monkeypatch.setattr(pretrained, "FOLDER", str(folder.parent))
    return smoke_run


def test_weights_are_rounded_to_16_bits_and_computed_in_32(shipped: str):
    full, half = (albert_tf.load_pretrainer(path) for path in (shipped, NAME))
    for ours, theirs in zip(full.weights, half.weights, strict=True):
        assert theirs.dtype == tf.float32
        np.testing.assert_array_equal(ours.numpy().astype(np.float16), theirs.numpy())
    encoder = albert_tf.AlbertEncoder.from_preset(NAME)
    for ours, theirs in zip(half.encoder.weights, encoder.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert albert_tf.AlbertConfig.from_preset(NAME) == half.config
    text = "the file is opened"
    tokenizers = map(albert_tf.load_tokenizer, (shipped, NAME))
    assert len({tuple(tokenizer.encode(text)) for tokenizer in tokenizers}) == 1
    (data,) = pathlib.Path(pretrained.FOLDER).glob("*/checkpoints/*.data-*")
    assert 2 * half.count_params() <= data.stat().st_size < 2.5 * half.count_params() + 2**14


def test_weights_of_16_bits_are_converted_back(shipped: str, tmp_path: pathlib.Path):
    convert.main(convert.ConvertOptions(NAME, str(tmp_path / "back")))
    half, back = (albert_tf.load_pretrainer(path) for path in (NAME, str(tmp_path / "back")))
    for ours, theirs in zip(half.weights, back.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    given = convert.ConvertOptions(NAME, f"google:{tmp_path / 'g'}", half_precision=True)
    with pytest.raises(InputError, match="--half_precision needs a target in our own format"):
        convert.main(given)


def test_a_path_goes_before_a_name_and_an_unknown_name_lists_the_others(
    shipped: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    assert pretrained.locate(NAME) == os.path.join(pretrained.FOLDER, NAME)
    assert pretrained.shown(f"random:{pretrained.locate(NAME)}") == f"random:{NAME}"
    assert pretrained.shown("/a/run") == "/a/run"
    with pytest.raises(InputError, match=f"{NAME}.* is not a fine-tuned run"):
        albert_tf.load_predictor(NAME)
    (tmp_path / "here" / NAME).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert pretrained.locate(NAME) == NAME
    assert pretrained.locate("gs://bucket/run") == "gs://bucket/run"
    with pytest.raises(InputNotFoundError, match=f"'albert-mnii'.*Included models: {NAME}"):
        albert_tf.load_encoder("albert-mnii")


def test_the_name_of_a_published_model_tells_how_to_fetch_it():
    with pytest.raises(InputNotFoundError, match="hf download albert/albert-base-v2 --local-dir"):
        pretrained.locate("albert-base-v2")
    with pytest.raises(InputNotFoundError, match="--allow_missing=pair_head --ignore=hidden_act`"):
        pretrained.locate("albert-base-v1")
    with pytest.raises(InputNotFoundError) as error:
        pretrained.locate("reviews")
    assert "hf download" not in str(error.value)
