"""Tests that weights come back from a run folder and an exported encoder, or with one line why."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import load_encoder, load_pretrainer, load_tokenizer
from albert_tf.convert import __main__ as convert
from albert_tf.export import __main__ as export
from albert_tf.models.checkpoints import (
    has_heads,
    latest_checkpoint,
    set_variables,
    weight_differences,
)
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError, InputNotFoundError


@pytest.fixture(scope="module")
def inputs(fake_inputs) -> dict:
    return fake_inputs(2, 9, (0, 4))


@pytest.fixture
def copy(pretrained, tmp_path) -> str:
    return shutil.copytree(pretrained, tmp_path / "run").as_posix()


def edit_model(path: str, **changes) -> None:
    with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config["model"] |= changes
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def test_pretrainer_and_encoder_of_a_run(copy, tiny, inputs):
    made = AlbertPretrainer(tiny).create_weights()
    tf.train.Checkpoint(model=made).save(os.path.join(copy, "checkpoints", "newer"))
    model, encoder = load_pretrainer(copy), load_encoder(copy)
    assert model.config == encoder.config == tiny
    for loaded, original in ((model, made), (encoder, made.encoder)):
        for mine, other in zip(loaded.variables, original.variables, strict=True):
            np.testing.assert_array_equal(mine, other)
    outputs = model(inputs | {"masked_lm_positions": np.zeros([2, 1], np.int32)})
    np.testing.assert_array_equal(outputs["pooled_output"], encoder(inputs)["pooled_output"])


@pytest.mark.slow_parameters("ffn")
@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_runs_of_every_sharing_are_loaded(tiny, tmp_path, sharing):
    config = tiny.replace(sharing=sharing)
    model = AlbertPretrainer(config).create_weights()
    (tmp_path / "config.json").write_text(json.dumps({"model": config.__dict__}))
    tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoints" / "ckpt"))
    loaded = load_encoder(str(tmp_path))
    for mine, other in zip(loaded.variables, model.encoder.variables, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", ["a [1]", "b*", "d\\e"])
def test_models_are_in_folders_of_any_name(pretrained, exports, tmp_path, name):
    run = shutil.copytree(pretrained, tmp_path / name / "run")
    export = shutil.copytree(exports / "encoder" / "1", tmp_path / name / "encoder")
    expected = load_pretrainer(pretrained)
    for mine, other in zip(load_pretrainer(run).weights, expected.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    for mine, other in zip(load_encoder(export).weights, expected.encoder.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    google, back = tmp_path / name / "google", tmp_path / name / "back"
    convert.main(convert.ConvertOptions(str(run), f"google:{google}"))
    convert.main(convert.ConvertOptions(f"google:{google}", str(back), half_precision=True))
    halved = load_pretrainer(back).encoder.weights[0]
    np.testing.assert_array_equal(halved, expected.encoder.weights[0].numpy().astype(np.float16))


@pytest.mark.parametrize("file", ["saved_model.pb", "variables/variables.index"])
def test_a_git_lfs_pointer_in_an_export_is_named(exports, tmp_path, file):
    export = shutil.copytree(exports / "encoder" / "1", tmp_path / "encoder")
    (export / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
    with pytest.raises(InputError, match=f"^'{export / file}' must be the file itself. Received"):
        load_encoder(export)


def test_a_saved_model_is_written_only_where_tensorflow_can_load_it(pretrained, tmp_path):
    output = str(tmp_path / "a [1]" / "encoder")
    with pytest.raises(InputError, match=r"--output must be a path without `\[` and `\\`.*Name an"):
        export.main(export.ExportOptions(pretrained, output))
    assert not os.path.exists(output)


def test_the_newest_checkpoint_is_read(copy):
    model = load_pretrainer(copy)
    model.pair_head.dense.bias.assign([5.0, 6.0])
    tf.train.Checkpoint(model=model).save(os.path.join(copy, "checkpoints", "newer"))
    np.testing.assert_array_equal(load_pretrainer(copy).pair_head.dense.bias, [5.0, 6.0])


def test_loading_ignores_the_optimizer(copy, tiny):
    from albert_tf.optimization import Lamb

    model, optimizer = AlbertPretrainer(tiny).create_weights(), Lamb(0.1)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    checkpoint.save(os.path.join(copy, "checkpoints", "newer"))
    loaded = load_encoder(copy)
    np.testing.assert_array_equal(loaded.pooler.kernel, model.encoder.pooler.kernel)


def one_line(function, path) -> str:
    with pytest.raises(InputError) as error:
        function(path)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 1000
    assert path in message
    return message


@pytest.mark.parametrize("load", [load_encoder, load_pretrainer])
def test_mistakes(load, copy, tmp_path):
    edit_model(copy, hidden_size=64)
    assert "does not fit" in one_line(load, copy)
    edit_model(copy, hidden_size=32, sharing="none")
    assert "does not fit" in one_line(load, copy)
    edit_model(copy, hidden_size=33)
    with pytest.raises(InputError, match="`num_heads` must divide"):
        load(copy)
    shutil.rmtree(os.path.join(copy, "checkpoints"))
    edit_model(copy, hidden_size=32, sharing="all")
    message = one_line(load, copy)
    assert "no checkpoint" in message
    assert os.getcwd() in message
    os.remove(os.path.join(copy, "config.json"))
    assert "no config" in one_line(load, copy)
    with pytest.raises(InputNotFoundError):
        load(str(tmp_path / "nowhere"))


def save_newer(path: str, **objects) -> None:
    tf.train.Checkpoint(**objects).save(os.path.join(path, "checkpoints", "newer"))


@pytest.mark.parametrize("load", [load_encoder, load_pretrainer])
def test_the_error_for_another_vocabulary_size_has_both_shapes(load, copy):
    edit_model(copy, vocab_size=200)
    message = one_line(load, copy)
    assert "embeddings/word_embeddings [300, 16], expected [200, 16]" in message
    assert "missing" not in message


@pytest.mark.slow_parameters("load_encoder")
@pytest.mark.parametrize("load", [load_encoder, load_pretrainer])
def test_weights_that_the_model_lacks_are_an_error(load, copy, tiny):
    model = AlbertPretrainer(tiny.replace(num_groups=3)).create_weights()
    save_newer(copy, model=model)
    message = one_line(load, copy)
    assert "32 unexpected (model/encoder/stack/attentions/1/" in message
    assert "and 29 more" in message


def test_a_checkpoint_without_heads(copy, tiny):
    encoder = AlbertEncoder(tiny).create_weights()
    save_newer(copy, model=tf.train.Checkpoint(encoder=encoder))
    assert "is an encoder and has no pretraining heads" in one_line(load_pretrainer, copy)
    np.testing.assert_array_equal(load_encoder(copy).pooler.kernel, encoder.pooler.kernel)


def test_a_checkpoint_of_another_object_is_refused(copy):
    save_newer(copy, weights=tf.Variable([1.0]))
    assert "25 weights expected, 0 found; 25 missing" in one_line(load_encoder, copy)


def test_differences_are_listed():
    expected = {"a": (2,), "b": (3, 4), "c": ()}
    assert weight_differences(expected, expected | {"b": [3, 4]}) == ""
    assert weight_differences(expected, {"b": [4, 3], "c": [], "d": [5]}) == (
        "3 weights expected, 3 found; 1 missing (a [2]); "
        "1 of another shape (b [4, 3], expected [3, 4]); 1 unexpected (d [5])."
    )


def test_a_torn_checkpoint(copy):
    name = latest_checkpoint(copy)
    with open(f"{name}.index", "r+b") as file:
        file.truncate(20)
    one_line(load_encoder, copy)


def test_fewer_layers_than_trained_with_shared_weights_are_the_same_weights(copy):
    # 12 applications of one block or 3: the checkpoint is the same.
    edit_model(copy, num_layers=5)
    assert load_encoder(copy).config.num_layers == 5


@pytest.fixture(scope="module")
def exported(exports) -> str:
    return str(exports / "encoder" / "1")


def test_an_exported_encoder_is_a_path_too(pretrained, exported, inputs, small_tokenizer):
    ours, theirs = load_encoder(pretrained)(inputs), load_encoder(exported)(inputs)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    assert load_tokenizer(exported).fingerprint == small_tokenizer.fingerprint


def test_an_exported_encoder_has_no_heads(exported):
    assert "has no pretraining heads" in one_line(load_pretrainer, exported)


def test_an_exported_encoder_of_another_config(exported, tmp_path):
    path = shutil.copytree(exported, tmp_path / "1").as_posix()
    edit_model(os.path.join(path, "assets.extra"), intermediate_size=32)
    assert "should have the shape (32, 32) and has (32, 64)" in one_line(load_encoder, path)


def test_another_export_is_no_encoder(exports):
    message = one_line(load_encoder, str(exports / "fill_mask" / "1"))
    assert "not an encoder" in message
    assert "--kind=encoder" in message


def test_an_export_without_extras(exported, tmp_path):
    path = shutil.copytree(exported, tmp_path / "1").as_posix()
    shutil.rmtree(os.path.join(path, "assets.extra"))
    assert "assets.extra" in one_line(load_encoder, path)


@pytest.mark.parametrize("damage", [lambda old: old[:100], lambda old: old[::-1]])
def test_an_export_with_damaged_weights(exported, tmp_path, damage):
    path = shutil.copytree(exported, tmp_path / "1").as_posix()
    for name in ("index", "data-00000-of-00001"):
        with open(os.path.join(path, "variables", f"variables.{name}"), "r+b") as file:
            content = damage(file.read())
            file.seek(0)
            file.truncate()
            file.write(content)
    assert "must be an intact SavedModel" in one_line(load_encoder, path)


def test_the_weights_of_an_export_are_read_without_its_graphs(exported, inputs, tmp_path):
    path = shutil.copytree(exported, tmp_path / "1").as_posix()
    with open(os.path.join(path, "saved_model.pb"), "wb"):
        pass
    ours, theirs = load_encoder(path)(inputs), load_encoder(exported)(inputs)
    np.testing.assert_array_equal(ours["pooled_output"], theirs["pooled_output"])


def test_set_variables_refuses_other_shapes(tiny):
    encoder = AlbertEncoder(tiny).create_weights()
    with pytest.raises(InputError, match="here"):
        set_variables(encoder, encoder.variables[1:], "here")


@pytest.mark.parametrize("content", [b"\xff", b"model_checkpoint_path: ", b"", b"{}"])
def test_a_damaged_list_of_checkpoints_is_named(copy, content):
    with open(os.path.join(copy, "checkpoints", "checkpoint"), "wb") as file:
        file.write(content)
    with pytest.raises(InputError, match="checkpoints/checkpoint' must name .* Copy it again"):
        latest_checkpoint(copy)


def test_a_list_of_checkpoints_that_was_not_downloaded(copy):
    with open(os.path.join(copy, "checkpoints", "checkpoint"), "wb") as file:
        file.write(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(InputError, match="checkpoints/checkpoint' .*Git LFS pointer"):
        latest_checkpoint(copy)


def test_a_damaged_index_is_named(copy):
    with open(os.path.join(copy, "checkpoints", "ckpt-1.index"), "wb") as file:
        file.write(b"x" * 100)
    for read in (has_heads, load_encoder):
        with pytest.raises(InputError, match=r"checkpoints/ckpt-1' (is not|does not fit)"):
            read(copy)


@pytest.mark.timeout(60)
def test_a_checkpoint_that_is_no_file_is_named_and_never_waited_for(copy):
    path = os.path.join(copy, "checkpoints", "ckpt-1.data-00000-of-00001")
    os.remove(path)
    os.mkfifo(path)
    for read in (has_heads, load_encoder):
        with pytest.raises(InputError, match=f"^{path} must be a file. Received: a pipe. Write"):
            read(copy)
