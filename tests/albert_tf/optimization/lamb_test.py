"""Tests of LAMB and AdamW against NumPy over ten steps, and of their saving and compile/fit."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.optimization import OPTIMIZERS, AdamW, Lamb, LinearWarmupLinearDecay

RATE, DECAY, STEPS = 0.05, 0.1, 10
NAMES = ("dense/kernel", "dense/bias", "block/layer_norm/gamma", "zero/kernel", "still/kernel")


def by_numpy(kind: str, values: list, gradients: list) -> list:
    """The formulas of albert_tf.optimization, word for word."""
    values = [value.copy() for value in values]
    moments = [(np.zeros_like(value), np.zeros_like(value)) for value in values]
    for step in range(STEPS):
        for i, (name, value) in enumerate(zip(NAMES, values, strict=True)):
            g, (m, v) = gradients[step][i], moments[i]
            m[:], v[:] = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            update, ratio = m / (np.sqrt(v) + 1e-6), 1.0
            if "bias" not in name and "layer_norm" not in name:
                update = update + DECAY * value
                norms = np.linalg.norm(value), np.linalg.norm(update)
                if kind == "lamb" and norms[0] > 0 and norms[1] > 0:
                    ratio = norms[0] / norms[1]
            value -= RATE * ratio * update
    return values


@pytest.fixture(scope="module")
def problem() -> tuple[list, list]:
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (4,), (4,), (2, 2), (2, 3)]
    values = [rng.normal(size=shape) for shape in shapes]
    values[3][:] = 0  # |w| = 0 at the first step
    values[4][:] = 0  # and |update| = 0 as well, at every step: no gradient ever
    gradients = [[rng.normal(size=shape) for shape in shapes] for _ in range(STEPS)]
    for step in gradients:
        step[4][:] = 0
    return values, gradients


def make(kind: str, **changes) -> AdamW:
    return OPTIMIZERS[kind](RATE, weight_decay_rate=DECAY, **changes)


def variables_of(values: list) -> list[tf.Variable]:
    pairs = zip(values, NAMES, strict=True)
    return [tf.Variable(value, name=name, dtype=tf.float32) for value, name in pairs]


def apply(optimizer: AdamW, variables: list, gradients: list) -> None:
    tensors = [tf.constant(gradient, tf.float32) for gradient in gradients]
    optimizer.apply_gradients(zip(tensors, variables, strict=True))


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_ten_steps_against_numpy(kind, mode, problem):
    values, gradients = problem
    optimizer, variables = make(kind), variables_of(values)
    optimizer.build(variables)

    def step(*tensors):
        optimizer.apply_gradients(zip(tensors, variables, strict=True))

    if mode != "eager":
        step = tf.function(step, jit_compile=mode == "xla")
    for of_step in gradients:
        step(*[tf.constant(gradient, tf.float32) for gradient in of_step])
    for name, variable, wanted in zip(NAMES, variables, by_numpy(kind, *problem), strict=True):
        np.testing.assert_allclose(variable, wanted, rtol=2e-4, atol=1e-6, err_msg=name)
    assert int(optimizer.iterations) == STEPS


def test_the_first_step_is_not_bias_corrected():
    # m = 0.1 g, v = 0.001 g^2: m / sqrt(v) is sqrt(10); with correction it would be 1.
    variable = tf.Variable([1.0], name="bias")
    optimizer = AdamW(1.0)
    optimizer.apply_gradients([(tf.constant([2.0]), variable)])
    assert float(variable[0]) == pytest.approx(1 - np.sqrt(10), rel=1e-4)


def test_a_zero_weight_moves_and_a_zero_update_does_not():
    for start, gradient, moves in ((0.0, 1.0, True), (0.0, 0.0, False), (1.0, 0.0, True)):
        variable = tf.Variable([[start]], name="kernel")
        Lamb(0.1).apply_gradients([(tf.constant([[gradient]]), variable)])
        assert np.isfinite(variable.numpy()).all()
        assert (float(variable[0, 0]) != start) == moves


def test_biases_and_norms_are_excluded(tiny):
    from albert_tf.models.pretrainer import AlbertPretrainer

    model = AlbertPretrainer(tiny).create_weights()
    excluded = {v.name for v in model.variables if Lamb(1.0).is_excluded(v)}
    rest = {v.name for v in model.variables} - excluded
    assert all(len(v.shape) == 1 for v in model.variables if v.name in excluded)
    assert all(len(v.shape) == 2 for v in model.variables if v.name in rest)
    assert any("word_embeddings" in name for name in rest)
    assert any("output_bias" in name for name in excluded)


def test_the_copies_of_a_mirrored_variable_are_excluded_like_it():
    """TensorFlow appends the number of the replica to the name of each further copy."""
    for name, is_excluded in (("dense/bias", True), ("layer_norm/beta", True), ("kernel", False)):
        for copy in ("", "/replica_1", "/replica_12"):
            variable = tf.Variable([1.0], name=name + copy)
            assert Lamb(1.0).is_excluded(variable) == is_excluded, variable.name


def test_the_decay_of_tf_keras_is_refused():
    """It would come on top of ours, and for all variables."""
    with pytest.raises(ValueError, match="weight_decay_rate"):
        Lamb(1.0, weight_decay=0.1)
    assert "weight_decay" not in AdamW(1.0).get_config()


def test_exclusions_can_be_chosen():
    optimizer = Lamb(1.0, exclude=("kernel",))
    kernel, bias = (tf.Variable([1.0], name=name) for name in ("kernel", "bias"))
    assert optimizer.is_excluded(kernel)
    assert not optimizer.is_excluded(bias)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_restart_from_a_checkpoint_changes_nothing(kind, problem, tmp_path):
    values, gradients = problem
    optimizer, variables = make(kind), variables_of(values)
    for of_step in gradients[:4]:
        apply(optimizer, variables, of_step)
    path = tf.train.Checkpoint(model=variables, optimizer=optimizer).save(str(tmp_path / "ckpt"))
    again, others = make(kind), variables_of([np.zeros_like(value) for value in values])
    again.build(others)
    reader = tf.train.Checkpoint(model=others, optimizer=again)
    reader.restore(path).assert_existing_objects_matched()
    assert int(again.iterations) == 4
    for of_step in gradients[4:]:
        apply(optimizer, variables, of_step)
        apply(again, others, of_step)
    for variable, other in zip(variables, others, strict=True):
        np.testing.assert_array_equal(variable, other)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_slots_are_m_and_v_of_each_variable(kind, problem):
    optimizer, variables = make(kind), variables_of(problem[0])
    optimizer.build(variables)
    optimizer.build(variables)  # again: nothing new
    own = [v for v in optimizer.variables if v.shape.rank]
    assert len(own) == 2 * len(variables)
    assert len({v.name for v in own}) == len(own)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_round_trip_of_the_configuration(kind):
    schedule = LinearWarmupLinearDecay(0.5, 3, 9)
    optimizer = OPTIMIZERS[kind](
        schedule,
        weight_decay_rate=0.2,
        beta_1=0.8,
        beta_2=0.9,
        epsilon=1e-4,
        exclude=("x",),
        global_clipnorm=1.5,
    )
    objects = {"LinearWarmupLinearDecay": LinearWarmupLinearDecay}
    again = OPTIMIZERS[kind].from_config(optimizer.get_config(), custom_objects=objects)
    for config in (again.get_config(), optimizer.get_config()):
        assert config["weight_decay_rate"] == 0.2
        assert config["beta_1"] == 0.8
        assert config["beta_2"] == 0.9
        assert config["epsilon"] == 1e-4
        assert tuple(config["exclude"]) == ("x",)
        assert config["global_clipnorm"] == 1.5
    assert float(again._learning_rate(1)) == float(schedule(1))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_compile_and_fit_follow_the_schedule(kind):
    model = tf_keras.Sequential([tf_keras.layers.Dense(4), tf_keras.layers.Dense(1)])
    optimizer = OPTIMIZERS[kind](LinearWarmupLinearDecay(0.1, 2, 40), global_clipnorm=1.0)
    model.compile(optimizer, "mse")
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    history = model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=8, verbose=0).history
    assert history["loss"][-1] < 0.9 * history["loss"][0]
    assert int(optimizer.iterations) == 32
    assert float(optimizer.learning_rate) == pytest.approx(0.1 * (1 - 31 / 40), rel=1e-5)


def test_gradients_as_slices_count_like_dense_ones():
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    slices = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([1, 1, 3]), tf.constant([4, 2]))
    results = []
    for gradient in (slices, tf.convert_to_tensor(slices)):
        variable = tf.Variable(table, name="table")
        Lamb(0.1).apply_gradients([(gradient, variable)])
        results.append(variable.numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
