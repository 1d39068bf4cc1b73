r"""Convert a BERT of Hugging Face to our format, to compare its scores after fine-tuning.

    python -m benchmarks.bert_weights --from=all-MiniLM-L6-v2 --to=artifacts/minilm
    python -m finetuning.table --runs=artifacts/minilm --tasks=sts-b,cola --data_dir=glue \
        --output=tables/minilm

--from is a folder with config.json, model.safetensors and tokenizer.json of an uncased BertModel.
--to is a new folder in our format, whose heads are random. Our GELU is the tanh form and theirs
mostly the erf form; the two differ by less than 5e-4. Fine-tuning hardly sees that, but other uses
may, so `albert_tf.convert` does not read such models.
"""

import dataclasses
import os

from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, MismatchPolicy, with_initialized_parts
from albert_tf.convert.config_keys import to_config
from albert_tf.convert.huggingface import weights
from albert_tf.convert.naming import Naming
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.text.tokenizer import Normalization, Tokenizer

_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "type_vocab_size",
    "layer_norm_eps": "layer_norm_eps",
    "hidden_act": "activation",
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
_TABLES = ("word_embeddings", "position_embeddings")
_LAYER = "encoder.layer.#"
NAMING = Naming(
    {
        **{f"encoder/embeddings/{name}": f"embeddings.{name}.weight" for name in _TABLES},
        "encoder/embeddings/type_embeddings": "embeddings.token_type_embeddings.weight",
        "encoder/embeddings/layer_norm": "embeddings.LayerNorm",
        **{
            f"encoder/stack/attentions/#/{name}": f"{_LAYER}.attention.self.{name}"
            for name in ("query", "key", "value")
        },
        "encoder/stack/attentions/#/output_dense": f"{_LAYER}.attention.output.dense",
        "encoder/stack/attentions/#/layer_norm": f"{_LAYER}.attention.output.LayerNorm",
        "encoder/stack/feed_forwards/#/intermediate": f"{_LAYER}.intermediate.dense",
        "encoder/stack/feed_forwards/#/output_dense": f"{_LAYER}.output.dense",
        "encoder/stack/feed_forwards/#/layer_norm": f"{_LAYER}.output.LayerNorm",
        "encoder/pooler": "pooler.dense",
        "mlm_head/transform": "cls.predictions.transform.dense",
        "mlm_head/layer_norm": "cls.predictions.transform.LayerNorm",
        "mlm_head/bias": "cls.predictions.bias",
        "pair_head/dense": "cls.seq_relationship",
    },
    {"kernel": ".weight", "bias": ".bias", "gamma": ".weight", "beta": ".bias"},
    lambda ours: ours.endswith("/kernel"),
)
_HEADS = MismatchPolicy(("mlm_head", "pair_head"))


@dataclasses.dataclass(frozen=True)
class BertWeightsOptions(commands.CommandOptions):
    """The command line of `benchmarks.bert_weights`."""

    source: str = commands.option("folder of a BertModel", flag="from", path=True)
    target: str = commands.option("folder to write, new or empty", flag="to", path=True)
    dry_run: bool = commands.option("read and check everything without writing", False)


def main(options: BertWeightsOptions) -> None:
    """Write the model in our format.

    Raises:
      InputError: --from holds another model, or --to is not new.
    """
    outputs.require_new(options.target, "--to")
    bundle = read(options.source)
    shown = f"{bundle.config.param_count():,} parameters"
    if options.dry_run:
        print(f"would write {options.target}: {shown}")
        return
    with outputs.new_folder(options.target, "--to") as folder:
        native.write(bundle, folder)
    print(f"wrote {options.target}: {shown}")


def read(path: str) -> Bundle:
    """Read a folder of a BertModel.

    Raises:
      InputError: it holds another model.
    """
    file = os.path.join(path, "config.json")
    values = outputs.read_json(file)
    fixed = {"model_type": "bert", "position_embedding_type": "absolute", "is_decoder": False}
    inert = values.keys() - _KEYS.keys() - fixed.keys()
    config = to_config(values, _KEYS, _ACTIVATIONS, fixed, inert, file)
    config = config.replace(embedding_size=config.hidden_size, sharing="none")
    tensors = weights.read(path)
    tensors.pop("embeddings.position_ids", None)  # range(512)
    found = NAMING.to_ours(config, tensors, _HEADS, path)
    return Bundle(config, with_initialized_parts(config, found), _tokenizer(path))


def _tokenizer(path: str) -> Tokenizer:
    """Return BERT's uncased tokenizer with the pieces of tokenizer.json.

    Raises:
      InputError: the file has other rules than those, or none.
    """
    file = os.path.join(path, "tokenizer.json")
    values = outputs.read_json(file)
    rules = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    rules |= {"strip_accents": None, "lowercase": True}
    if values.get("normalizer") != rules or values["model"].get("type", "WordPiece") != "WordPiece":
        raise InputError(f"{file} must be that of an uncased BERT, with WordPiece.")
    vocabulary = values["model"]["vocab"]
    pieces = "".join(f"{piece}\n" for piece in sorted(vocabulary, key=vocabulary.get))
    return Tokenizer(pieces.encode(), Normalization(unify_quotes=False), source=file)


if __name__ == "__main__":
    commands.run(main, BertWeightsOptions, __doc__)
