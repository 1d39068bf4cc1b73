"""Proves that TF Serving's own parsers take what an export leaves beside the SavedModel."""

import os

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from albert_tf.export import __main__ as program
from albert_tf.export import serving


@pytest.fixture(scope="module")
def exported(pretrained, tmp_path_factory):
    """kind -> the folder of the exports of a pretrained run."""
    root = tmp_path_factory.mktemp("exports")
    for kind in ("encoder", "fill_mask"):
        program.main(program.ExportOptions(pretrained, str(root / kind), kind=kind))
    return root


@pytest.mark.parametrize("kind", ["encoder", "fill_mask"])
def test_warm_up_requests_are_answered(exported, kind):
    path = str(exported / kind / "1")
    signatures = (loaded := tf.saved_model.load(path)).signatures
    records = tf.data.TFRecordDataset(os.path.join(path, "assets.extra", serving.WARM_UP))
    lengths = []
    for record in records.as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        serve = signatures[request.model_spec.signature_name]
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        assert serve(**{name: tf.constant(value) for name, value in inputs.items()})
        first = next(iter(inputs.values()))
        lengths.append(first.size if first.dtype == np.int32 else len(first[0].split()))
    assert lengths == [1, 8, 16, 32]  # the model reads 40 positions
    del loaded


def test_configuration(exported):
    folder = exported / "encoder" / "serving"
    models = text_format.Parse(
        (folder / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    )
    (model,) = models.model_config_list.config
    assert (model.name, model.base_path) == ("encoder", "/models/encoder")
    assert "/models/encoder" in (folder / "compose.yaml").read_text()


def test_what_the_user_changed_stays(exported, pretrained):
    changed = exported / "encoder" / "serving" / "batching.config"
    changed.write_text("max_batch_size { value: 4 }\n")
    again = program.ExportOptions(pretrained, str(exported / "encoder"), kind="encoder", version=2)
    program.main(again)
    assert changed.read_text() == "max_batch_size { value: 4 }\n"
