"""What layers and models need to be saved by Keras and made again from an `AlbertConfig`."""

from collections.abc import Mapping
from typing import Any, Self

import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings


class PolicyMixin:
    """Mixin, before Layer or Model: `dtype` is the policy of matrix products.

    Weights, LayerNorm, softmax and heads are float32 under every policy.

    Raises:
      ValueError: a `dtype` that is not one of `POLICIES`.
    """

    POLICIES: tuple[str, ...] = ("float32", "mixed_bfloat16", "mixed_float16")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy.name  # type: ignore[attr-defined]
        if policy not in self.POLICIES:
            raise ValueError(
                f"`dtype` of {type(self).__name__} must be one of {', '.join(self.POLICIES)}. "
                f"Received: {policy}."
            )


class Float32Layer(PolicyMixin, tf_keras.layers.Layer):
    """A layer that computes in float32, whatever the global policy."""

    POLICIES = ("float32",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32"} | kwargs)


class ConfigMixin(PolicyMixin):
    """Mixin, before Layer or Model, of classes whose first argument is an `AlbertConfig`."""

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, the configuration as a dict."""
        # Of Layer: a Model whose `get_config` is overridden gives nothing.
        base = tf_keras.layers.Layer.get_config(self)  # type: ignore[arg-type]
        return base | {"config": settings.to_dict(self.config)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """The inverse of `get_config`, with new weights."""
        model = AlbertConfig.from_dict(config["config"])
        return cls(**{**config, "config": model})
