"""ALBERT for TensorFlow 2: the library for pretraining, fine-tuning and serving.

Names are loaded on first use, so that processes that only read text never import TensorFlow.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from albert_tf.runtime import programs

if TYPE_CHECKING:  # for editors and type checkers, which run nothing
    from albert_tf.models.config import AlbertConfig as AlbertConfig
    from albert_tf.models.encoder import AlbertEncoder as AlbertEncoder
    from albert_tf.models.encoder import load_encoder as load_encoder
    from albert_tf.models.pretrainer import AlbertPretrainer as AlbertPretrainer
    from albert_tf.models.pretrainer import load_pretrainer as load_pretrainer
    from albert_tf.tasks.embedding.embedder import load_embedder as load_embedder
    from albert_tf.tasks.examples import TextExample as TextExample
    from albert_tf.tasks.features import Features as Features
    from albert_tf.tasks.multiple_choice.examples import ChoiceExample as ChoiceExample
    from albert_tf.tasks.predictor import load_predictor as load_predictor
    from albert_tf.tasks.pretrained.fill_mask import load_fill_mask as load_fill_mask
    from albert_tf.tasks.ranking.ranker import load_ranker as load_ranker
    from albert_tf.tasks.saving import save_model as save_model
    from albert_tf.tasks.spans.examples import SpanExample as SpanExample
    from albert_tf.tasks.tokens.examples import TokenExample as TokenExample
    from albert_tf.text.tokenizer import load_tokenizer as load_tokenizer

    __version__: str

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    programs.refuse_python()

_VERSION = "0.1.0"  # of a checkout; a wheel's may be that of a tag

_MODULE_OF = {
    "AlbertConfig": "albert_tf.models.config",
    "AlbertEncoder": "albert_tf.models.encoder",
    "AlbertPretrainer": "albert_tf.models.pretrainer",
    "ChoiceExample": "albert_tf.tasks.multiple_choice.examples",
    "Features": "albert_tf.tasks.features",
    "SpanExample": "albert_tf.tasks.spans.examples",
    "TextExample": "albert_tf.tasks.examples",
    "TokenExample": "albert_tf.tasks.tokens.examples",
    "load_embedder": "albert_tf.tasks.embedding.embedder",
    "load_encoder": "albert_tf.models.encoder",
    "load_fill_mask": "albert_tf.tasks.pretrained.fill_mask",
    "load_predictor": "albert_tf.tasks.predictor",
    "load_pretrainer": "albert_tf.models.pretrainer",
    "load_ranker": "albert_tf.tasks.ranking.ranker",
    "load_tokenizer": "albert_tf.text.tokenizer",
    "save_model": "albert_tf.tasks.saving",
}
__all__ = [*_MODULE_OF, "__version__"]  # noqa: PLE0604


if not TYPE_CHECKING:  # with it, a type checker would take any name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return _version()
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")
        return getattr(importlib.import_module(_MODULE_OF[name]), name)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("albert_tf") if programs.is_installed() else _VERSION
    except metadata.PackageNotFoundError:  # the folder was copied alone
        return _VERSION


def __dir__() -> list[str]:
    return __all__
