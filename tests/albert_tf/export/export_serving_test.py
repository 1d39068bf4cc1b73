"""Tests that TF Serving's own parsers take what an export leaves beside the SavedModel."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
import yaml
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from albert_tf.export import __main__ as program
from albert_tf.export import saved_model, serving
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime.errors import InputError, MachineError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.pretrained.encoder import EncoderModule
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.spans.module import SpanModule


@pytest.fixture(scope="module")
def exported(exports, tmp_path_factory):
    """kind -> the folder of the exports of a pretrained run."""
    return shutil.copytree(exports, tmp_path_factory.mktemp("exports") / "copy")


@pytest.mark.parametrize("kind", ["encoder", "fill_mask"])
def test_warm_up_requests_are_answered(exported, kind):
    path = str(exported / kind / "1")
    signatures = (loaded := tf.saved_model.load(path)).signatures
    records = tf.data.TFRecordDataset(os.path.join(path, "assets.extra", serving.WARM_UP))
    requested = collections.defaultdict(list)
    for record in records.as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        name = request.model_spec.signature_name
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        assert signatures[name](**{name: tf.constant(value) for name, value in inputs.items()})
        first = next(iter(inputs.values()))
        requested[name].append(first.size if first.dtype == np.int32 else 2 + len(first[0].split()))
    assert requested.pop("serving_default") == [*range(8, 16), *range(16, 32, 2), 32, 36, 40]
    assert set(requested) == set(signatures) - {"serving_default"}
    del loaded


@pytest.mark.parametrize(("names", "special"), [(["text"], 2), (["text_a", "text_b"], 3)])
def test_warm_up_requests_have_every_width(names, special, small_tokenizer, tmp_path):
    """That of the longest texts too, which need not be one of the widths."""
    specs = [tf.TensorSpec([None], tf.string, name) for name in names]
    signature = types.SimpleNamespace(input_signature=specs)
    serving.write_warm_up(str(tmp_path), {"serving_default": signature}, small_tokenizer, 100)
    lengths = []
    for record in tf.data.TFRecordDataset(str(tmp_path / serving.WARM_UP)).as_numpy_iterator():
        inputs = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request.inputs
        texts = [tf.make_ndarray(inputs[name])[0].decode() for name in names]
        lengths.append(special + sum(map(len, small_tokenizer.encode_batch(texts))))
    assert lengths == [*range(8, 16), *range(16, 32, 2), *range(32, 64, 4), *range(64, 100, 8), 100]


def test_warm_up_requests_suit_a_model_with_one_type(tiny, small_tokenizer, tmp_path):
    config = tiny.replace(num_layers=1, max_positions=10, type_vocab_size=1)
    signatures = EncoderModule(AlbertEncoder(config).create_weights()).signatures()
    serving.write_warm_up(str(tmp_path), signatures, small_tokenizer, 10)
    widths = []
    for record in tf.data.TFRecordDataset(str(tmp_path / serving.WARM_UP)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        answer = signatures[request.model_spec.signature_name](**inputs)
        widths.append(answer["sequence_output"].shape[1])
    assert widths == [8, 9, 10, 8]


def test_a_name_that_no_server_takes(pretrained, tmp_path):
    with pytest.raises(InputError, match="--output.*letters, digits.*'fill mask'"):
        program.main(program.ExportOptions(pretrained, str(tmp_path / "fill mask")))
    assert os.listdir(tmp_path) == []


def test_configuration(exported):
    folder = exported / "encoder" / "serving"
    models = text_format.Parse(
        (folder / "model.config").read_text(), model_server_config_pb2.ModelServerConfig()
    )
    (model,) = models.model_config_list.config
    assert (model.name, model.base_path) == ("encoder", "/models/encoder")
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    service = compose["services"]["encoder"]
    assert service["volumes"][0] == "..:/models/encoder:ro"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("writer", [(serving, "write_configuration"), (saved_model, "save")])
def test_an_export_that_was_interrupted_is_repeated(pretrained, tmp_path, monkeypatch, writer):
    """The folder then has both, a version and its configuration."""

    def full(*_) -> None:
        raise MachineError

    options = program.ExportOptions(pretrained, str(tmp_path / "texts"), kind="preprocessing")
    with monkeypatch.context() as patch, pytest.raises(MachineError):
        patch.setattr(*writer, full)
        program.main(options)
    program.main(options)
    assert (tmp_path / "texts" / "1" / "saved_model.pb").is_file()
    assert (tmp_path / "texts" / "serving" / "model.config").is_file()


def test_a_number_names_a_service(tmp_path):
    folder = tmp_path / "2024" / "serving"
    serving.write_configuration(str(folder.parent))
    assert list(yaml.safe_load((folder / "compose.yaml").read_text())["services"]) == ["2024"]


class TestRequestsOfTheDocumentation:
    """docs/serving.md: every request has the inputs of the signature that it names."""

    DOCUMENT = (pathlib.Path(__file__).parents[3] / "docs" / "serving.md").read_text("utf-8")

    @pytest.fixture(scope="class")
    def modules(self, tiny, small_tokenizer):
        def model(task):
            encoder = AlbertEncoder(tiny.replace(num_layers=1))
            return KINDS[task.kind].model(encoder, task).create_weights()

        labels, of_pairs = ("no", "yes"), {"seq_length": 16, "pair": True}
        return {
            "reviews": ClassifierModule(model(ClassifierSettings(labels)), small_tokenizer),
            "pairs": ClassifierModule(
                model(ClassifierSettings(labels, **of_pairs)), small_tokenizer
            ),
            "squad": SpanModule(model(SpanSettings(seq_length=16)), small_tokenizer),
        }

    @pytest.mark.parametrize(
        "answered", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["named", "answered"]
    )
    def test_rest(self, modules, answered):
        found = re.findall(r"models/(\w+):(\w+) -d '(.*)'", self.DOCUMENT)
        methods = {f"{name}:{method}" for name, method, _ in found}
        assert methods == {"reviews:predict", "reviews:classify", "pairs:predict", "squad:predict"}
        for name, method, body in found:
            request = json.loads(body)
            signature = modules[name].signatures()[request.get("signature_name", "serving_default")]
            names = {spec.name for spec in signature.input_signature}
            if method == "classify":
                (inputs,) = request["examples"]
                assert set(inputs) == {"text"}
                example = tf.train.Example()
                example.features.feature["text"].bytes_list.value.append(inputs["text"].encode())
                columns, shape = [tf.constant([example.SerializeToString()])], (1, 2)
                assert not answered or signature(*columns)["classes"].shape == shape
                continue
            # Bare instances are for signatures with one input.
            inputs = request.get("inputs") or dict.fromkeys(names, request.get("instances"))
            assert set(inputs) == names
            columns = [tf.constant(inputs[spec.name]) for spec in signature.input_signature]
            values = signature(*columns).values() if answered else ()
            assert all(value.shape[0] == columns[0].shape[0] for value in values)

    @pytest.mark.slow
    def test_rest_over_http(self, modules, small_tokenizer, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps({"task": {"seq_length": 16}}))
        config, served = str(tmp_path / "config.json"), []
        for name, module in modules.items():
            saved_model.save(module, str(tmp_path / name / "1"), small_tokenizer, config)
            served.append(f"{name}={tmp_path / name}")
        script = pathlib.Path(__file__).parents[3] / "examples" / "serve.py"
        command = [sys.executable, "-I", str(script), "localhost:0", *served]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                url = server.stdout.readline().split()[-1]
                for path, body in re.findall(r"(/v1/\S+) -d '(.*)'", self.DOCUMENT):
                    request = urllib.request.Request(url + path, body.encode())
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        found = json.load(answer)
                    answers = {"instances": "predictions", "inputs": "outputs"}
                    kinds = {answers.get(key, "results") for key in json.loads(body)}
                    assert found and set(found) <= kinds, found
            finally:
                server.terminate()

    def test_grpc(self, modules):
        code = re.search(r"```python\n(import grpc.*?)```", self.DOCUMENT, re.DOTALL)[1]
        head, sent, _ = code.partition("channel = ")
        assert sent
        scope = {}
        exec(head, scope)
        request = scope["request"]
        signature = modules[request.model_spec.name].signatures()[request.model_spec.signature_name]
        assert set(request.inputs) == {spec.name for spec in signature.input_signature}
        answer = signature(tf.constant(tf.make_ndarray(request.inputs["text"])))
        assert "label" in answer
        assert 'outputs["label"]' in code


@pytest.mark.slow
def test_exporting_again_leaves_changed_server_files(exported, pretrained):
    changed = exported / "encoder" / "serving" / "batching.config"
    changed.write_text("max_batch_size { value: 4 }\n")
    again = program.ExportOptions(pretrained, str(exported / "encoder"), kind="encoder", version=2)
    program.main(again)
    assert changed.read_text() == "max_batch_size { value: 4 }\n"
