"""The first weights of a run: those of a trained model, perhaps for a larger vocabulary."""

import os

import numpy as np

from albert_tf.models.checkpoints import note_unfinished
from albert_tf.models.config import AlbertConfig
from albert_tf.models.head import load_heads
from albert_tf.models.pretrainer import AlbertPretrainer, load_pretrainer, require_heads
from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.extension import origins, why_no_extension
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data.pipeline.batches import Mixture
from data.records.manifest import tokenizer_of
from pretraining.loop.config import PretrainConfig


def first_weights(
    init: str, config: PretrainConfig, records: Mixture, unfinished: bool
) -> list[np.ndarray]:
    """Return the weights at `init`, whose model and vocabulary must equal the run's.

    The run's vocabulary may also extend that of `init` (`larger_vocabulary`). Dropout,
    initialization and recomputation may differ, and `max_positions` if positions are rotary. If all
    layers share one block, so may their number: the paper starts each depth of its Table 11 from
    the weights of the previous one.

    Raises:
      InputError: the run at `init` has not ended and `unfinished` is False, or the models or
        tokenizers differ. The message names the differing keys.
    """
    init = pretrained.locate(init)
    require_heads(init)
    RunDir(init).require_ended("--init", unfinished)
    note_unfinished(init)
    model = AlbertConfig.from_json(os.path.join(init, "config.json"))
    old, new = load_tokenizer(init), tokenizer_of(records.parts[0].folder)
    is_same = old.fingerprint == records.manifest.tokenizer_fingerprint
    if not is_same and (reason := why_no_extension(old, new)):
        raise InputError(
            f"--init={init} was trained with another tokenizer than that of "
            f"--data={records.parts[0].folder}, which does not extend it either ({reason}): "
            f"rebuild the records with data.build --tokenizer={init}, or with what "
            f"data.train_tokenizer --extend={init} makes."
        )
    require_same_model(init, model, config.model, is_same)
    if load_heads(init) != config.heads:
        raise InputError(
            f"--init={init} has other pretraining heads than `objective.pair="
            f"{config.objective.pair}` needs: choose the objective that it was trained with."
        )
    pretrainer = load_pretrainer(init)
    return pretrainer.get_weights() if is_same else larger_vocabulary(pretrainer, old, new)


def require_same_model(
    init: str, model: AlbertConfig, wanted: AlbertConfig, same_vocabulary: bool
) -> None:
    """Check that a run's model can begin with the weights at `init`.

    Args:
      init: `--init`, for the message.
      model: its model.
      wanted: the run's.
      same_vocabulary: False to leave out the sizes of the vocabularies.

    Raises:
      InputError: other values than those that may differ do.
    """
    not_compared = {
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "rematerialize": False,
        "rematerialize_chunks": 1,
    }
    if model.has_one_block and wanted.has_one_block:
        not_compared["num_layers"] = 1
    if not same_vocabulary:
        not_compared["vocab_size"] = 1
    if wanted.positions == "rotary":  # there is no table of positions
        not_compared["max_positions"] = 4
    if differing := settings.differing_keys(
        model.replace(**not_compared), wanted.replace(**not_compared)
    ):
        raise InputError(
            f"--init={init} contains another model than the run's (its value != the run's): "
            f"{'; '.join(differing)}. Give this run its values with --set model.KEY=VALUE, or "
            "retrain that model with these values."
        )


def larger_vocabulary(
    pretrainer: AlbertPretrainer, old: Tokenizer, new: Tokenizer
) -> list[np.ndarray]:
    """Return the weights of a pretrainer for the vocabulary `new`, which extends `old`.

    A new piece begins with the mean of its parts (`extension.origins`), both its row of the word
    embeddings and its bias of masked LM. All other values stay.
    """
    parts = origins(old, new)

    def longer(weights: np.ndarray) -> np.ndarray:
        rows = [np.mean([weights[ids].mean(0) for ids in part], 0) for part in parts]
        known = weights[: old.vocab_size]  # without rows that no piece uses
        return np.concatenate([known, np.asarray(rows, weights.dtype)])

    by_piece = {id(pretrainer.encoder.embeddings.word_embeddings), id(pretrainer.mlm_head.bias)}
    return [
        longer(value) if id(weight) in by_piece else value
        for weight, value in zip(pretrainer.weights, pretrainer.get_weights(), strict=True)
    ]
