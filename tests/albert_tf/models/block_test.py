"""Tests of the blocks that are not the paper's against NumPy, and that all ways through agree."""

import importlib.util
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.convert import __main__ as convert
from albert_tf.convert.config_keys import KEYS, from_config
from albert_tf.models.config import FFNS, NORMS, POSITIONS, AlbertConfig
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.kernels.choice import LOOPED
from albert_tf.models.layers.attention import additive_mask
from albert_tf.models.layers.shared_stack import SharedStack
from albert_tf.models.pretrainer import AlbertPretrainer, load_pretrainer
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError

BLOCKS = list(itertools.product(NORMS, POSITIONS, FFNS))
NEW = {"norm": "pre", "positions": "rotary", "ffn": "gated"}


@pytest.fixture(autouse=True)
def seed():
    """Whatever ran before, a test has the same weights."""
    tf_keras.utils.set_random_seed(1)


def config(**changes) -> AlbertConfig:
    values = {
        "vocab_size": 50,
        "embedding_size": 8,
        "hidden_size": 16,
        "num_layers": 4,
        "num_heads": 2,
        "intermediate_size": 48,
        "max_positions": 12,
        "initializer_range": 0.3,
    }
    return AlbertConfig(**values | changes)


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = np.array([12, 7, 3])[:, None]
    ids = rng.integers(5, 50, [3, 12])
    types = np.arange(12) >= lengths // 2
    values = zip(INPUTS, (ids, np.arange(12) < lengths, types), strict=True)
    return {name: value.astype(np.int32) for name, value in values}


def trained_looking(model: tf.Module) -> None:
    """Weights of which none is 0 or 1, so that no term can be forgotten."""
    rng = np.random.default_rng(1)
    for each in model.trainable_variables:
        each.assign_add(rng.normal(size=each.shape, scale=0.1).astype(np.float32))


def by_numpy(encoder: AlbertEncoder, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The last layer's output in float64, written down from the papers."""
    c = encoder.config
    weights = {v.name.split("/", 1)[1][:-2]: v.numpy().astype(float) for v in encoder.variables}

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x**2).mean(-1, keepdims=True) + c.layer_norm_eps)
        return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    def dense(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def turned(x):  # [B, S, N, D]
        half = c.head_size // 2
        angle = np.arange(12)[:, None, None] * 10_000.0 ** (-np.arange(half) / half)
        z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
        return np.concatenate([z.real, z.imag], -1)

    def attention(x):
        name = "stack/attention_0"
        heads = [*x.shape[:2], c.num_heads, c.head_size]
        q, k, v = (dense(x, f"{name}/{n}").reshape(heads) for n in ("query", "key", "value"))
        if c.positions == "rotary":
            q, k = turned(q), turned(k)
        scores = np.einsum("bsnd,btnd->bnst", q, k) / np.sqrt(c.head_size)
        scores = np.where(inputs["input_mask"][:, None, None] > 0, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return dense(np.einsum("bnst,btnd->bsnd", p, v).reshape(x.shape), f"{name}/output")

    def feed_forward(x):
        inner = dense(x, "stack/feed_forward_0/intermediate")
        if c.ffn == "gated":
            gate, value = np.split(inner, 2, -1)
            inner = gelu(gate) * value
        else:
            inner = gelu(inner)
        return dense(inner, "stack/feed_forward_0/output")

    x = weights["embeddings/word_embeddings"][inputs["input_word_ids"]]
    x = x + weights["embeddings/type_embeddings"][inputs["input_type_ids"]]
    if c.positions == "learned":
        x = x + weights["embeddings/position_embeddings"]
    x = dense(norm(x, "embeddings/layer_norm"), "embeddings/projection")
    for _ in range(c.num_layers):
        for name, part in (("attention_0", attention), ("feed_forward_0", feed_forward)):
            own = f"stack/{name}/layer_norm"
            x = norm(x + part(x), own) if c.norm == "post" else x + part(norm(x, own))
    return x if c.norm == "post" else norm(x, "stack/output_layer_norm")


@pytest.mark.parametrize("block", BLOCKS)
def test_the_encoder_by_numpy(block):
    values = config(num_layers=2, **dict(zip(("norm", "positions", "ffn"), block, strict=True)))
    encoder = AlbertEncoder(values).create_weights()
    assert sum(np.prod(v.shape) for v in encoder.variables) == values.param_count()
    trained_looking(encoder)
    expected = by_numpy(encoder, batch())
    for training in (False, True):  # two implementations
        ours = encoder(batch(), training=training)["sequence_output"]
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_a_gate_costs_no_parameters():
    plain, gated = (AlbertConfig.from_preset("albert-base-v2").replace(ffn=ffn) for ffn in FFNS)
    assert gated.inner_size == 2048
    # Three kernels of H x 2/3 F for two of H x F; of biases 2 x 2048 + H for 3072 + H.
    assert gated.param_count() - plain.param_count() == 1024
    assert (
        AlbertConfig(hidden_size=256, num_heads=4, intermediate_size=1024, ffn="gated").inner_size
        == 680
    )


def test_rotary_positions_have_no_table_and_tell_order():
    encoder = AlbertEncoder(config(positions="rotary")).create_weights()
    assert not any("position" in variable.name for variable in encoder.variables)
    trained_looking(encoder)
    inputs = {name: value[:1] for name, value in batch().items()} | {
        "input_type_ids": np.zeros([1, 12], np.int32)
    }
    reverse = inputs | {"input_word_ids": inputs["input_word_ids"][:, ::-1]}
    forward, backward = (encoder(x)["sequence_output"][0] for x in (inputs, reverse))
    assert np.abs(forward - backward[::-1]).max() > 0.1
    with pytest.raises(ConfigError, match=r"must be even if `positions` is rotary.*18 / 2"):
        config(positions="rotary", hidden_size=18)


def test_first_outputs_of_pre_norm_are_small():
    values = config(norm="pre", hidden_size=128, intermediate_size=512, num_layers=32)
    deep = AlbertEncoder(values, unroll=False).create_weights()
    kernels = {v.name.split("/", 1)[1]: np.std(v) for v in deep.variables if "kernel" in v.name}
    # Truncation at two deviations leaves 0.88 of one; the rest is divided by sqrt(2 x 32) = 8.
    assert kernels["stack/attention_0/query/kernel:0"] == pytest.approx(0.264, rel=0.05)
    for name in ("attention_0/output", "feed_forward_0/output"):
        assert kernels[f"stack/{name}/kernel:0"] == pytest.approx(0.264 / 8, rel=0.05)


@pytest.mark.slow_parameters("all-2")
@pytest.mark.slow_parameters("attention-1", "none-1")
@pytest.mark.parametrize(("sharing", "groups"), [("all", 2), ("attention", 1), ("none", 1)])
def test_recomputed_and_rolled_stacks_compute_the_same(sharing, groups):
    values = config(**NEW, sharing=sharing, num_groups=groups, hidden_dropout=0.1)
    stacks = [
        SharedStack(values),
        SharedStack(values.replace(rematerialize=True, rematerialize_chunks=3)),
        SharedStack(values, unroll=False),
    ]
    for stack in stacks:
        stack.build(None)
        stack.set_weights(stacks[0].get_weights())
    x = tf.constant(np.random.default_rng(2).normal(size=[3, 12, 16]).astype(np.float32))
    mask = additive_mask(batch()["input_mask"])

    def trained(stack: SharedStack) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = stack(x, mask, dropout_key=tf.constant([1, 2]), training=True)[-1]
            loss = tf.reduce_sum(y**3)
        return [y, *tape.gradient(loss, [x, *stack.trainable_variables])]

    for plain, recomputed in zip(*map(tf.function(trained), stacks[:2]), strict=True):
        tolerance = 1e-5 * np.abs(plain).max() + 1e-5
        np.testing.assert_allclose(recomputed, plain, rtol=1e-4, atol=tolerance)
    for depth in (2, None):  # the depth dial: layer 2's output is that of a stack of two
        (rolled,) = stacks[2].run(LOOPED, x, mask, num_layers=depth)
        np.testing.assert_allclose(rolled, stacks[0](x, mask)[(depth or 0) - 1], atol=1e-5)


def test_mixed_precision_and_saved_files(tmp_path):
    model = AlbertPretrainer(config(**NEW), dtype="mixed_bfloat16").create_weights()
    exact = AlbertPretrainer(config(**NEW)).create_weights()
    trained_looking(exact)
    model.set_weights(exact.get_weights())
    inputs = batch() | {"masked_lm_positions": np.array([[1, 2]] * 3, np.int32)}
    for name in ("sequence_output", "mlm_logits"):
        ours, theirs = model(inputs, training=True)[name], exact(inputs)[name]
        assert np.linalg.norm(ours - theirs) < 0.03 * np.linalg.norm(theirs)
    exact.save_weights(str(tmp_path / "m.weights.h5"))
    again = AlbertPretrainer(config(**NEW)).create_weights()
    again.load_weights(str(tmp_path / "m.weights.h5"))
    np.testing.assert_array_equal(again(inputs)["mlm_logits"], exact(inputs)["mlm_logits"])
    exact.encoder.save(str(tmp_path / "encoder.keras"))
    loaded = tf_keras.models.load_model(str(tmp_path / "encoder.keras"))
    outputs = (each(batch())["sequence_output"] for each in (loaded, exact.encoder))
    np.testing.assert_array_equal(*outputs)


def test_a_run_of_another_block_is_copied_and_refused(tmp_path):
    model = AlbertPretrainer(config(**NEW)).create_weights()
    source = tmp_path / "run"
    tf.train.Checkpoint(model=model).save(str(source / "checkpoints" / "ckpt"))
    (source / "config.json").write_text(json.dumps({"model": settings.to_dict(model.config)}))
    convert.main(convert.ConvertOptions(str(source), str(tmp_path / "copy")))
    again = load_pretrainer(str(tmp_path / "copy"))
    for ours, theirs in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for name in ("huggingface", "google"):
        with pytest.raises(ConfigError, match="`norm` post. Received: 'pre'"):
            convert.main(convert.ConvertOptions(str(source), f"{name}:{tmp_path / name}"))
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("training", [True, False])
def test_a_new_model_takes_labels(policy, training):
    model = AlbertPretrainer(config(), dtype=policy)
    inputs = batch() | {"masked_lm_positions": np.array([[1, 2]] * 3, np.int32)}
    labels = {"masked_lm_ids": np.full([3, 2], 7, np.int32), "masked_lm_weights": np.ones([3, 2])}
    sums = model(inputs, training=training, labels=labels)["mlm_sums"]
    logits = tf.nn.log_softmax(model(inputs)["mlm_logits"])
    assert float(sums[0]) == pytest.approx(-float(tf.reduce_sum(logits[..., 7])), rel=2**-7)


@pytest.mark.parametrize("key", NEW)
def test_other_formats_refuse_other_blocks(key):
    with pytest.raises(ConfigError, match=f"`{key}`.*Received: '{NEW[key]}'"):
        from_config(config(**{key: NEW[key]}), KEYS)


MODERN_BERT = """
import sys, numpy as np, torch, transformers
given = dict(np.load(sys.argv[1]))
size, layers, heads, inner = given.pop("sizes").tolist()
x, mask, upstream = (torch.tensor(given.pop(name)) for name in ("x", "mask", "upstream"))
rotary = {"rope_type": "default", "rope_theta": 10000.0}
model = transformers.ModernBertModel(transformers.ModernBertConfig(
    vocab_size=10, pad_token_id=0, hidden_size=size, num_hidden_layers=layers,
    num_attention_heads=heads, intermediate_size=inner, hidden_activation="gelu_new",
    norm_eps=1e-12, norm_bias=True, attention_bias=True, mlp_bias=True,
    layer_types=["full_attention"] * layers, attn_implementation="eager",
    rope_parameters={"full_attention": rotary, "sliding_attention": rotary},
)).eval()
model.embeddings.norm = torch.nn.Identity()  # ours stands before the projection
model.layers[0].attn_norm = torch.nn.LayerNorm(size, eps=1e-12)
weights = {name: torch.tensor(value, requires_grad=True) for name, value in given.items()}
linear = lambda name: {"weight": weights[f"{name}/kernel"].T, "bias": weights[f"{name}/bias"]}
norm = lambda name: {"weight": weights[f"{name}/gamma"], "bias": weights[f"{name}/beta"]}
qkv = [linear(f"attention_0/{name}") for name in ("query", "key", "value")]
parts = {
    "attn_norm": norm("attention_0/layer_norm"), "mlp_norm": norm("feed_forward_0/layer_norm"),
    "attn.Wqkv": {key: torch.cat([part[key] for part in qkv]) for key in ("weight", "bias")},
    "attn.Wo": linear("attention_0/output"), "mlp.Wo": linear("feed_forward_0/output"),
    "mlp.Wi": linear("feed_forward_0/intermediate"),
}
named = {f"layers.{i}.{part}.{key}": value for i in range(layers)
         for part, values in parts.items() for key, value in values.items()}
named |= {f"final_norm.{key}": value for key, value in norm("output_layer_norm").items()}
assert named.keys() == {n for n, _ in model.named_parameters() if "tok_embeddings" not in n}
out = torch.func.functional_call(
    model, named, kwargs={"inputs_embeds": x, "attention_mask": mask}).last_hidden_state
(out * upstream).sum().backward()
np.savez(sys.argv[2], out=out.detach(), **{name: w.grad for name, w in weights.items()})
"""


@pytest.mark.slow
def test_the_pre_norm_rotary_gated_stack_is_modern_berts(tmp_path):
    """Outputs and gradients, by Hugging Face's torch ModernBertModel with one block's weights."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is absent: install requirements-slow.txt")
    values, rng = config(**NEW), np.random.default_rng(2)
    stack, real = SharedStack(values), batch()["input_mask"]
    x, upstream = rng.normal(size=[2, 3, 12, 16]).astype(np.float32)
    upstream *= real[:, :, None]  # outputs at padding mean nothing
    given, visible = tf.constant(x), additive_mask(tf.constant(real))
    stack(given, visible)
    trained_looking(stack)
    with tf.GradientTape() as tape:
        out = stack(given, visible, training=True)[-1]
    gradients = tape.gradient(out, stack.trainable_variables, upstream)
    names = [v.name.split("/", 1)[1][:-2] for v in stack.trainable_variables]
    weights = {n: v.numpy() for n, v in zip(names, stack.trainable_variables, strict=True)}
    sizes = [values.hidden_size, values.num_layers, values.num_heads, values.inner_size]
    np.savez(tmp_path / "given.npz", x=x, mask=real, upstream=upstream, sizes=sizes, **weights)
    files = [str(tmp_path / name) for name in ("given.npz", "expected.npz")]
    subprocess.run([sys.executable, "-c", MODERN_BERT, *files], check=True)
    with np.load(files[1]) as file:
        expected = dict(file)
    shown = real[:, :, None] > 0
    np.testing.assert_allclose(out * shown, expected.pop("out") * shown, rtol=1e-4, atol=1e-5)
    assert expected.keys() == set(names)
    for name, ours in zip(names, gradients, strict=True):
        largest = np.abs(expected[name]).max()
        np.testing.assert_allclose(ours, expected[name], rtol=1e-4, atol=1e-4 * largest)
