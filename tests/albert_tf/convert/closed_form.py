"""The shapes of the weights in closed form (paper section 3.1): the oracle of `weight_shapes`."""

from albert_tf.models.config import AlbertConfig, sharing_plan

Shapes = dict[str, tuple[int, ...]]


def pretraining_head_shapes(config: AlbertConfig) -> Shapes:
    e, h, v = config.embedding_size, config.hidden_size, config.vocab_size
    shapes = _dense("mlm_head/transform", h, e) | _norm("mlm_head/layer_norm", e)
    return shapes | {"mlm_head/bias": (v,)} | _dense("pair_head/dense", h, 2)


def encoder_shapes(config: AlbertConfig) -> Shapes:
    e, h, f = config.embedding_size, config.hidden_size, config.inner_size
    first = f if config.ffn == "plain" else 2 * f  # includes the gate
    shapes: Shapes = {
        "encoder/embeddings/word_embeddings": (config.vocab_size, e),
        "encoder/embeddings/type_embeddings": (config.type_vocab_size, e),
    }
    if config.positions == "learned":
        shapes["encoder/embeddings/position_embeddings"] = (config.max_positions, e)
    shapes |= _norm("encoder/embeddings/layer_norm", e)
    if e != h:
        shapes |= _dense("encoder/embeddings/projection", e, h)
    plan = sharing_plan(config)
    for i in sorted({layer.attention for layer in plan}):
        for name in ("query", "key", "value", "output_dense"):
            shapes |= _dense(f"encoder/stack/attentions/{i}/{name}", h, h)
        shapes |= _norm(f"encoder/stack/attentions/{i}/layer_norm", h)
    for i in sorted({layer.ffn for layer in plan}):
        shapes |= _dense(f"encoder/stack/feed_forwards/{i}/intermediate", h, first)
        shapes |= _dense(f"encoder/stack/feed_forwards/{i}/output_dense", f, h)
        shapes |= _norm(f"encoder/stack/feed_forwards/{i}/layer_norm", h)
    if config.norm == "pre":
        shapes |= _norm("encoder/stack/output_layer_norm", h)
    return shapes | _dense("encoder/pooler", h, h)


def _dense(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}
