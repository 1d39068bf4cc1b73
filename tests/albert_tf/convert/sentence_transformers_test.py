"""Embeddings in folders of sentence-transformers: there and back, foreign files, the package."""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import albert_tf
from albert_tf.convert.__main__ import ConvertOptions, main
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.predictor import task_of
from albert_tf.tasks.ranking.model import RankingSettings
from tests.finetuning.untrained import leave_run, leave_weights

TEXTS = ["an apple", "a saw and a file, which are tools", "plum"]
PROMPTS = {"query_prompt": "it ", "passage_prompt": "the "}


def run_with(pretrained: str, folder: pathlib.Path, **values: object) -> str:
    task = EmbeddingSettings(seq_length=16, **values)
    path = leave_run(pretrained, folder / "run", "embedding", task)
    leave_weights(path, seed=5)
    return path


@pytest.fixture(params=[0, 7])
def folder(request, pretrained: str, tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of theirs, without and with a Dense module; `run` beside it is ours."""
    path = run_with(pretrained, tmp_path, projection=request.param, **PROMPTS)
    main(ConvertOptions(path, f"huggingface:{tmp_path / 'theirs'}"))
    return tmp_path / "theirs"


def back(folder: pathlib.Path, **options: object) -> pathlib.Path:
    target = folder.parent / "back"
    shutil.rmtree(target, ignore_errors=True)
    main(ConvertOptions(f"huggingface:{folder}", str(target), **options))
    return target


def change(path: pathlib.Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_vectors_are_the_same_there_and_back(folder: pathlib.Path):
    wanted = albert_tf.load_embedder(str(folder.parent / "run"))
    found = albert_tf.load_embedder(str(back(folder)))
    assert task_of(str(folder.parent / "back")) == task_of(str(folder.parent / "run"))
    np.testing.assert_allclose(found(TEXTS), wanted(TEXTS), atol=1e-6)
    queries = found.encode_query(TEXTS)
    np.testing.assert_allclose(queries, wanted.encode_query(TEXTS), atol=1e-6)


def test_what_others_wrote(folder: pathlib.Path):
    """Without our own section, and with the pooling under one key."""
    config = json.loads((folder / "config.json").read_text())
    del config["albert_tf_task"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    task = task_of(str(back(folder)))
    assert (task.seq_length, task.pooling, task.query_prompt) == (12, "mean", "it ")
    assert task.projection in (0, 7)
    (folder / "sentence_bert_config.json").unlink()  # as version 6 of the package has it
    for length, wanted in ((9, 9), (10**30, config["max_position_embeddings"])):
        change(folder / "tokenizer_config.json", model_max_length=length)
        assert task_of(str(back(folder))).seq_length == wanted


def test_a_bare_encoder_is_one(folder: pathlib.Path):
    (folder / "modules.json").unlink()
    target = back(folder, allow_missing="mlm_head,pair_head")
    assert json.loads((target / "config.json").read_text())["task"]["kind"] == "pretraining"


@pytest.mark.parametrize("folder", [7], indirect=True)
@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (
            "modules.json",
            [{"type": "x.Transformer", "path": ""}],
            "must list a Transformer, a Pool",
        ),
        ("modules.json", {"a": 1}, "must list a Transformer, a Pooling"),
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "must be the mean of the tokens.*max"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "Received: 'cls, mean'",
        ),
        ("2_Dense/config.json", {"activation_function": "torch.nn.Tanh"}, "no activation here"),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "mean", "include_prompt": False},
            "prompts and `include_prompt` false is not supported",
        ),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": "q: "}, "default_prompt_name": "query"},
            "prompts and `default_prompt_name` is not supported",
        ),
        ("sentence_bert_config.json", {"do_lower_case": True}, "`do_lower_case` must be false"),
        (
            "sentence_bert_config.json",
            {"max_seq_length": 2},
            "`max_seq_length` must be .* 2. .*: 2",
        ),
        ("sentence_bert_config.json", {"max_seq_length": True}, "whole number .*Received: True"),
        ("added_tokens.json", {"[URL]": "x"}, "its added tokens must have numbers"),
        ("added_tokens.json", {"[URL]": 100_000}, r"Received: '\[URL\]', the first of 1\. Convert"),
    ],
)
def test_what_does_not_fit_is_named(folder: pathlib.Path, file: str, values: object, message: str):
    (folder / file).write_text(json.dumps(values))
    with pytest.raises(InputError, match=message):
        back(folder)
    assert not (folder.parent / "back").exists()


def test_lengths_that_count_are_refused(folder: pathlib.Path):
    """With a Normalize, a dot product is the cosine."""
    change(folder / "config_sentence_transformers.json", similarity_fn_name="dot")
    back(folder)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:-1]))
    shutil.rmtree(folder.parent / "back")
    with pytest.raises(InputError, match="must be cosine without a Normalize.*Received: 'dot'"):
        back(folder)


def test_a_bias_is_refused(pretrained: str, tmp_path: pathlib.Path):
    path = run_with(pretrained, tmp_path, projection=7)
    main(ConvertOptions(path, f"huggingface:{tmp_path / 'theirs'}"))
    file = tmp_path / "theirs" / "2_Dense" / "model.safetensors"
    tensors = safetensors.numpy.load(file.read_bytes())
    file.write_bytes(safetensors.numpy.save(tensors | {"linear.bias": np.ones(7, np.float32)}))
    with pytest.raises(InputError, match="no bias and no activation here.*a bias"):
        back(tmp_path / "theirs")


def test_another_pooling_cannot_be_written(pretrained: str, tmp_path: pathlib.Path):
    path = run_with(pretrained, tmp_path, pooling="cls")
    with pytest.raises(InputError, match="takes the first hidden state itself as `cls`"):
        main(ConvertOptions(path, f"huggingface:{tmp_path / 'theirs'}"))


PROGRAM = """
import json, sys
from sentence_transformers import SentenceTransformer
model, texts = SentenceTransformer(sys.argv[1]), json.loads(sys.argv[2])
vectors = [model.encode(texts, prompt_name=name).tolist() for name in (None, "query")]
print(json.dumps(vectors))
"""


RANKING_PROGRAM = """
import json, sys
from sentence_transformers import CrossEncoder
model, texts = CrossEncoder(sys.argv[1]), json.loads(sys.argv[2])
print(json.dumps(model.predict([(texts[0], text) for text in texts]).tolist()))
"""


def answer_of(program: str, folder: pathlib.Path) -> Any:
    """What a program of theirs prints, in a process: TensorFlow and torch's triton crash in one."""
    pytest.importorskip("transformers")
    if importlib.util.find_spec("sentence_transformers") is None:
        pytest.skip("sentence_transformers is absent: requirements-slow.txt")
    command = [sys.executable, "-P", "-c", program, str(folder), json.dumps(TEXTS)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_package_gives_the_same(folder: pathlib.Path):
    texts, queries = answer_of(PROGRAM, folder)
    ours = albert_tf.load_embedder(str(folder.parent / "run"))
    np.testing.assert_allclose(texts, ours(TEXTS), atol=1e-5)
    np.testing.assert_allclose(queries, ours.encode_query(TEXTS), atol=1e-5)


@pytest.mark.slow
def test_its_cross_encoder_gives_the_scores_of_a_ranker(pretrained: str, tmp_path: pathlib.Path):
    path = leave_run(pretrained, tmp_path / "run", "ranking", RankingSettings(seq_length=32))
    leave_weights(path, seed=5)
    main(ConvertOptions(path, f"huggingface:{tmp_path / 'theirs'}"))
    scores = albert_tf.load_ranker(path)(TEXTS[0], TEXTS)
    assert np.ptp(scores) > 1e-3
    np.testing.assert_allclose(answer_of(RANKING_PROGRAM, tmp_path / "theirs"), scores, atol=1e-5)
    assert task_of(str(back(tmp_path / "theirs"))).kind == "ranking"
