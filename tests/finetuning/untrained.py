"""Complete runs of any task without training, for what does not depend on how good they are.

And `load_once`, as loading a run takes longer than what is asked of it.
"""

import copy
import functools
import os
import pathlib
from typing import Any

from albert_tf.models.checkpoints import load_config
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import Predictor, load_predictor
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer


def leave_run(start: str, path: pathlib.Path, name: str, section: Any, data: str = "") -> str:
    """A folder as `finetuning.train` leaves it, without weights; `data` is their fingerprint."""
    run = RunDir(str(path))
    config = {"model": RunDir(start).config()["model"], "task": settings.to_dict(section)}
    run.begin(config | {"name": name, "data": data, "seed": 3}, load_tokenizer(start))
    run.finish({})
    return run.path


def leave_pretrained(path: pathlib.Path, model: AlbertConfig, tokenizer: Tokenizer) -> RunDir:
    """A folder as pretraining leaves it, with random weights."""
    import tensorflow as tf
    import tf_keras

    from albert_tf.models.pretrainer import AlbertPretrainer

    run = RunDir(str(path))
    run.begin({"model": settings.to_dict(model), "task": {"kind": "pretraining"}}, tokenizer)
    tf_keras.utils.set_random_seed(1)
    pretrainer = AlbertPretrainer(model).create_weights()
    tf.train.Checkpoint(model=pretrainer).save(os.path.join(run.checkpoints_path, "ckpt"))
    run.finish({})
    return run


def leave_weights(path: str, seed: int) -> None:
    """Random ones, of all layers."""
    import tensorflow as tf
    import tf_keras

    from albert_tf.models.encoder import AlbertEncoder
    from albert_tf.tasks.kinds import KINDS
    from albert_tf.tasks.predictor import task_of

    tf_keras.utils.set_random_seed(seed)
    task = task_of(path)
    model = KINDS[task.kind].model(AlbertEncoder(load_config(path)), task).create_weights()
    tf.train.Checkpoint(model=model).save(os.path.join(RunDir(path).checkpoints_path, "ckpt"))


@functools.cache
def _loaded(path: str) -> Predictor:
    return load_predictor(path)


def load_once(path: str) -> Predictor:
    """The predictor of a run, which is loaded once in a process; its settings may be replaced."""
    return copy.copy(_loaded(path))
