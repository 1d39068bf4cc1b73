"""Base classes that let Keras save layers and models and rebuild them from an `AlbertConfig`."""

from collections.abc import Mapping
from typing import Any, Self

import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.errors import shortened


class PolicyMixin:
    """A mixin, listed before Layer or Model, whose `dtype` is the policy of matrix products.

    Weights, LayerNorm, softmax and heads are float32 under every policy.

    Raises:
      ValueError: `dtype` is not one of `POLICIES`.
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
    """A layer that computes in float32 under every global policy."""

    POLICIES = ("float32",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32"} | kwargs)


class ConfigMixin(PolicyMixin):
    """A mixin, listed before Layer or Model, of classes that take an `AlbertConfig` first.

    Raises:
      TypeError: `config` is something else.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        if not isinstance(config, AlbertConfig):
            raise TypeError(
                f"`config` of {type(self).__name__} must be an AlbertConfig. Received: "
                f"{shortened(config)}. Models have from_preset for names and paths."
            )
        super().__init__(**kwargs)
        self.config = config

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, with the configuration as a dict."""
        # Layer's, since Model's returns an empty dict if a subclass overrides `get_config`.
        base = tf_keras.layers.Layer.get_config(self)  # type: ignore[arg-type]
        return base | {"config": settings.to_dict(self.config)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """Build the layer or model that `get_config` describes, with new weights."""
        model = AlbertConfig.from_dict(config["config"])
        return cls(**{**config, "config": model})
