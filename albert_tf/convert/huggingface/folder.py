"""Folders of Hugging Face's transformers: config.json, model.safetensors, the vocabulary.

A pretrained model is an AlbertForPreTraining; the module `task` describes fine-tuned ones. Reading
pytorch_model.bin needs torch.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.convert import config_keys
from albert_tf.convert.bundle import HEAD, Bundle, MismatchPolicy, Weights
from albert_tf.convert.huggingface import task as huggingface_task
from albert_tf.convert.huggingface import tokenizer as huggingface_tokenizer
from albert_tf.convert.huggingface import weights as huggingface_weights
from albert_tf.convert.huggingface.fast_tokenizer_writer import require_writable
from albert_tf.convert.naming import Naming
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files import outputs
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.wordpiece import MAX_WORD

KEYS = config_keys.KEYS | {"layer_norm_eps": "layer_norm_eps"}
# Their plain "gelu" is the erf form, which our models do not have.
_ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "relu": "relu",
}
_FIXED = config_keys.FIXED | {
    "model_type": "albert",
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "tie_encoder_decoder": False,
    "pruned_heads": {},
}
_INERT = {
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "_num_labels",
    "architectures",
    "bos_token_id",
    "chunk_size_feed_forward",
    "classifier_dropout_prob",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "label2id",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "problem_type",
    "return_dict",
    "sbert_ce_default_activation_function",
    "sentence_transformers",
    "sep_token_id",
    "task_specific_params",
    "tf_legacy_loss",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
    "xla_device",
    # Text generation settings, which every model's file once contained.
    "bad_words_ids",
    "begin_suppress_tokens",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "prefix",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    huggingface_task.SECTION,
}
_LAYER = "albert.encoder.albert_layer_groups.#.albert_layers.0"
PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
_TABLES = {  # ours -> theirs: weights outside dense layers
    "word_embeddings": "word_embeddings",
    "type_embeddings": "token_type_embeddings",
    "position_embeddings": "position_embeddings",
}
NAMING = Naming(
    {
        **{f"encoder/embeddings/{x}": f"albert.embeddings.{y}.weight" for x, y in _TABLES.items()},
        "encoder/embeddings/layer_norm": "albert.embeddings.LayerNorm",
        "encoder/embeddings/projection": PROJECTION,
        **{
            f"encoder/stack/attentions/#/{x}": f"{_LAYER}.attention.{x}"
            for x in ("query", "key", "value")
        },
        "encoder/stack/attentions/#/output_dense": f"{_LAYER}.attention.dense",
        "encoder/stack/attentions/#/layer_norm": f"{_LAYER}.attention.LayerNorm",
        "encoder/stack/feed_forwards/#/intermediate": f"{_LAYER}.ffn",
        "encoder/stack/feed_forwards/#/output_dense": f"{_LAYER}.ffn_output",
        "encoder/stack/feed_forwards/#/layer_norm": f"{_LAYER}.full_layer_layer_norm",
        "encoder/pooler": "albert.pooler",
        "mlm_head/transform": "predictions.dense",
        "mlm_head/layer_norm": "predictions.LayerNorm",
        "mlm_head/bias": "predictions.bias",
        "pair_head/dense": "sop_classifier.classifier",
        **{head.our_layer: head.layer for head in huggingface_task.CLASSES.values()},
    },
    {"kernel": ".weight", "bias": ".bias", "gamma": ".weight", "beta": ".bias"},
    lambda ours: ours.endswith("/kernel"),
)
_TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
_BUFFERS = ("albert.embeddings.position_ids", "albert.embeddings.token_type_ids")


def read(path: str, policy: MismatchPolicy) -> Bundle:
    """Read the model in a folder: pretrained, or with the task head that `architectures` names.

    Raises:
      InputNotFoundError: there is no config.json, or there are no weights.
      InputError: the weights do not match the configuration, or our model does not support it.
    """
    if not os.path.isdir(path):
        raise InputNotFoundError(
            f"no folder {path!r} (working directory {os.getcwd()}). Nothing is downloaded: fetch "
            "the model's files first, for example with `hf download NAME --local-dir FOLDER`."
        )
    file = os.path.join(path, "config.json")
    values = outputs.read_json(file)
    values = {key: value for key, value in values.items() if key not in policy.ignore}
    config = read_config(values, file)
    task, assumed = huggingface_task.read(values, config, policy, file)
    tensors = huggingface_weights.read(path)
    if not any(name.startswith("albert.") for name in tensors):  # saved from a bare AlbertModel
        tensors = {f"albert.{name}": value for name, value in tensors.items()}
    tensors |= huggingface_task.class_of(task).tensors_in(path)
    ignored = (*_BUFFERS, *policy.ignore)
    if policy.ignores(HEAD):
        ignored += huggingface_task.HEADS
    tensors = {name: value for name, value in tensors.items() if not name.startswith(ignored)}
    ordered = huggingface_task.in_our_order(tensors, values, task, file)
    weights = to_ours(config, ordered, policy, path, task)
    return Bundle(config, weights, huggingface_tokenizer.read(path), task, assumed)


def check(bundle: Bundle) -> list[str]:
    """Return notes on what their format loses.

    Raises:
      ConfigError: their format cannot represent this model.
      InputError: transformers has no class for its head.
    """
    config = bundle.config
    config_keys.from_config(config, KEYS)
    notes = huggingface_task.check(bundle.task)
    if bundle.task is None and config.mlm_layer_norm_eps != config.layer_norm_eps:
        notes.append(
            f"Hugging Face's code uses epsilon {config.layer_norm_eps} in every LayerNorm, "
            "including the MLM head's, so predictions for masked pieces will differ slightly from "
            f"those with your epsilon {config.mlm_layer_norm_eps}."
        )
    tokenizer = bundle.tokenizer
    if tokenizer is None:
        return notes
    if huggingface_tokenizer.is_sentencepiece(tokenizer):
        require_writable(tokenizer)
    else:
        if tokenizer.normalization.unify_quotes:
            notes.append("Your tokenizer, unlike Hugging Face's, replaces `` and '' with \".")
        notes.append(
            "Hugging Face's tokenizer makes a word of more than 100 characters unknown, yours one "
            f"of more than {MAX_WORD}."
        )
    return notes


def write(bundle: Bundle, folder: str) -> None:
    """Write a folder that `from_pretrained` loads without missing or unexpected keys."""
    task = bundle.task
    tensors = from_ours(bundle.config, bundle.weights, task)
    for name, content in huggingface_task.class_of(task).files(task, tensors).items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        outputs.write_bytes(os.path.join(folder, name), content)
    huggingface_weights.write(tensors, folder)
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    if bundle.tokenizer:
        ids = bundle.tokenizer.special
        special = {"pad_token_id": ids.pad, "bos_token_id": ids.cls, "eos_token_id": ids.sep}
        longest = bundle.config.max_positions if task is None else task.seq_length
        huggingface_tokenizer.write(bundle.tokenizer, folder, longest)
    outputs.write_json(os.path.join(folder, "config.json"), to_json(bundle.config, task) | special)


def read_config(values: Mapping[str, Any], source: str) -> AlbertConfig:
    """Return our configuration for the values of their config.json.

    Raises:
      ConfigError: our model does not support a value.
    """
    config = config_keys.to_config(values, KEYS, _ACTIVATIONS, _FIXED, _INERT, source)
    # All of their LayerNorms, including the MLM head's, use one epsilon.
    return config.replace(mlm_layer_norm_eps=config.layer_norm_eps)


def to_json(config: AlbertConfig, task: TaskSettings | None = None) -> dict[str, Any]:
    """Return their config.json, except the keys that depend on the tokenizer."""
    values = config_keys.from_config(config, KEYS)
    values["hidden_act"] = {"gelu": "gelu_new", "relu": "relu"}[config.activation]
    values |= {"model_type": "albert", "dtype": "float32"}
    if task is not None:
        return values | huggingface_task.to_json(task)
    return values | {"architectures": ["AlbertForPreTraining"], "classifier_dropout_prob": 0.1}


def from_ours(
    config: AlbertConfig, weights: Weights, task: TaskSettings | None = None
) -> dict[str, np.ndarray]:
    """Return the tensors of their AlbertForPreTraining (its decoder is tied) or task class."""
    tensors = NAMING.from_ours(huggingface_task.from_ours(weights, task))
    if config.embedding_size == config.hidden_size:  # they always project, here by the identity
        tensors[f"{PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=np.float32)
        tensors[f"{PROJECTION}.bias"] = np.zeros(config.hidden_size, np.float32)
    return tensors


def to_ours(
    config: AlbertConfig,
    tensors: Weights,
    policy: MismatchPolicy,
    source: str,
    task: TaskSettings | None = None,
) -> dict[str, np.ndarray]:
    """Return our weights for their tensors.

    Raises:
      InputError: names or shapes differ, the decoder is not tied, or E == H and the projection is
        not the identity.
    """
    weights = dict(tensors)
    for copy, original in _TIED.items():
        if copy in weights and not np.array_equal(
            weights.setdefault(original, weights[copy]), weights[copy]
        ):
            raise InputError(
                f"{source!r}: {copy} must equal {original}, but differs. An MLM head with an "
                "untied decoder is not supported."
            )
        weights.pop(copy, None)
    if config.embedding_size == config.hidden_size:
        kernel = weights.pop(f"{PROJECTION}.weight", np.zeros([]))
        bias = weights.pop(f"{PROJECTION}.bias", np.zeros([]))
        if not np.array_equal(kernel, np.eye(config.hidden_size)) or bias.any():
            raise InputError(
                f"{source!r}: {PROJECTION} must be the identity if embedding_size equals "
                "hidden_size, but is not."
            )
    policy = huggingface_task.mismatch_policy(policy, task)
    ours = NAMING.to_ours(config, weights, policy, source, task)
    return dict(huggingface_task.class_of(task).to_ours(ours, task))
