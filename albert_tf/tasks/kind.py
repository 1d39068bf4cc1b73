"""The contract of a kind of task, and of everything else that can be exported.

A new kind is a room beside this module, whose `kind.py` derives from `Kind`; `finetuning/kinds` has
its other room. `albert_tf.export`, `albert_tf.convert` and `finetuning` ask the contract only.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic

import numpy as np
import tensorflow as tf

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.graph.signatures import ServedModule
from albert_tf.models.checkpoints import load_config, read_checkpoint
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.runtime import settings
from albert_tf.runtime.bounds import Bounded, one_of
from albert_tf.runtime.errors import in_file
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.examples import Example
from albert_tf.tasks.features import Features
from albert_tf.tasks.probabilities import average_softmax, softmax
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.task_settings import SettingsT
from albert_tf.tasks.transformers_head import TransformersHead
from albert_tf.text.tokenizer import Tokenizer

POOLINGS = ("mean", "cls")


@dataclasses.dataclass(frozen=True)
class ExportSettings(Bounded):
    """The settings of an export that some kinds take.

    Attributes:
      depths: for each K, add a signature depth_K that uses the encoder's first K layers.
      patience: add a signature early_exit, where a text leaves the encoder once this many layers in
        a row have not changed its label; 0 for none.
      pooling: how an encoder that was not trained for it makes a text's vector: the `mean` of the
        last layer over its pieces, or `cls`, the encoder's pooled output. None: that of the run, or
        the mean.
    """

    KEY = "--{}"

    depths: tuple[int, ...] = ()
    patience: int = 0
    pooling: Annotated[str | None, one_of(*POOLINGS)] = None


class Export(abc.ABC):
    """What `albert_tf.export` can write.

    Attributes:
      name: the value of --kind.
      options: the options that it takes, of ExportSettings and `precision`.
      has_tokens: True if its module has the signature `tokens`, which takes ids.
      has_onnx: True if it has `onnx_outputs`.
      needs_pretraining_heads: True if a fine-tuned run, which has lost them, cannot be exported so.
      may_use_constants: True if an export in bfloat16 may hold the layers' weights as constants.
    """

    name: ClassVar[str]
    options: ClassVar[Sequence[str]] = ("precision",)
    has_tokens: ClassVar[bool] = True
    has_onnx: ClassVar[bool] = True
    needs_pretraining_heads: ClassVar[bool] = False
    may_use_constants: ClassVar[bool] = True

    @abc.abstractmethod
    def load(self, path: str, unroll: bool = True) -> Any:
        """Load the model of a run; `unroll` is passed to its encoder.

        Raises:
          InputNotFoundError: `path` is not a run, or has no checkpoint.
          InputError: the run has no such model, or its checkpoint does not fit.
        """

    @abc.abstractmethod
    def module(self, model: Any, tokenizer: Tokenizer, values: ExportSettings) -> ServedModule:
        """Return the module to save. Its signature `tokens`, if any, is the model in LiteRT.

        Raises:
          InputError: the model does not have what `values` ask for.
        """

    def encoder_of(self, model: Any) -> AlbertEncoder:
        """Return the encoder of a model that `load` returns, if it has one."""
        return model.encoder

    def onnx_inputs(self) -> Mapping[str, Sequence[str]]:
        """Return the shapes of the int32 inputs of the ONNX model by name."""
        return {name: ("B", "S") for name in INPUTS}

    def onnx_outputs(self, encoder: EncoderGraph, model: Any, values: ExportSettings) -> Outputs:
        """Add the model to the graph of its encoder, and return its outputs."""
        raise NotImplementedError


class Kind(Export, Generic[SettingsT]):
    """A kind of task.

    Attributes:
      settings: the frozen dataclass of the `task` section. Every field but `labels` has a default.
      model: the class of the model; its arguments are (encoder, settings).
      module_class: the class of the exported module, unless `module` is overridden; its arguments
        are (model, tokenizer) and those of `options` that ExportSettings has.
      example: the class of the examples.
      features: the class of the features.
      takes_strings: True if a string may stand for an example, whose first field it is.
      transformers: the class of transformers that corresponds to it. None: there is none.
      takes_encoders: True if `load` also takes runs of other kinds, of which it uses the encoder.
    """

    settings: type[SettingsT]
    model: ClassVar[type[TaskModel]]
    module_class: ClassVar[Callable[..., ServedModule]]
    example: ClassVar[type[Example]]
    features: ClassVar[type[Features]]
    takes_strings: ClassVar[bool] = False
    transformers: ClassVar[TransformersHead[Any] | None] = None
    takes_encoders: ClassVar[bool] = False

    def load(self, path: str, unroll: bool = True) -> TaskModel:
        """Load the fine-tuned model of a run."""
        task, config = self.settings_of(RunDir(path)), load_config(path)
        task.require_positions(config.max_positions, f"{path}/config.json")
        model = self.model(AlbertEncoder(config, unroll), task).create_weights()
        read_checkpoint(tf.train.Checkpoint(model=model), path)
        if task.logit_temperature != 1:
            model.divide_logits(task.logit_temperature)
        return model

    def settings_of(self, run: RunDir) -> SettingsT:
        """Return the `task` section of a run of this kind.

        Raises:
          ConfigError: a key is unknown, or a value impossible; the message names the file.
        """
        with in_file(run.config_path):
            return settings.from_dict(self.settings, run.section("task"), "task.")

    def module(self, model: Any, tokenizer: Tokenizer, values: ExportSettings) -> ServedModule:
        """Return the module to save."""
        given = {name: getattr(values, name) for name in self.options if name != "precision"}
        return self.module_class(model, tokenizer, **given)

    @abc.abstractmethod
    def featurize(self, examples: Sequence[Any], tokenizer: Tokenizer, task: SettingsT) -> Features:
        """Return the features that the model reads; with targets if every example has its own.

        Raises:
          InputError: an example does not fit the task.
        """

    @abc.abstractmethod
    def decode(
        self, outputs: Any, features: Any, examples: Sequence[Any], task: SettingsT
    ) -> list[dict[str, Any]]:
        """Return a prediction for each example, from the model's outputs as arrays."""

    def text_logits(self, outputs: Any, features: Any, task: SettingsT) -> Any:
        """Return the logits of the examples from those of their windows.

        Here the outputs are logits of labels that exclude each other. The softmax of the result is
        the pooled probabilities; those of `max` are normalized.
        """
        if features.num_examples == len(outputs):
            return outputs
        with np.errstate(divide="ignore"):
            return np.log(features.pooled(softmax(outputs), task.long_texts))

    def average(self, members: Sequence[Any]) -> Any:
        """Return an ensemble's outputs from those of its members on the same features.

        Here the outputs are logits, and the softmax of the result is the mean of the members'. See
        the paper, section 4.9.
        """
        return average_softmax(members)
