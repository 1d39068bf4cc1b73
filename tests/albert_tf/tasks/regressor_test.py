"""Regression: the unit of the head and of the loss."""

import numpy as np
import pytest

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.regressor.model import RegressorSettings, SequenceRegressor


def test_the_head_s_unit_and_the_loss_by_hand(tiny, fake_inputs):
    plain = SequenceRegressor(AlbertEncoder(tiny), RegressorSettings()).create_weights()
    scaled = SequenceRegressor(plain.encoder, RegressorSettings(center=100.0, scale=20.0))
    scaled.create_weights().set_weights(plain.get_weights())
    values, inputs = plain(fake_inputs(3, 9)).numpy(), fake_inputs(3, 9)
    np.testing.assert_allclose(scaled(inputs).numpy(), 100 + 20 * values, rtol=1e-6)
    # ((110 - 100) / 20)^2 and ((130 - 100) / 20)^2
    loss = scaled.training_losses()(np.array([[110.0], [130.0]]), np.array([100.0, 100.0], "f4"))
    assert float(loss) == pytest.approx((0.25 + 2.25) / 2)
    with pytest.raises(ConfigError, match="`task.scale` must be positive. Received: 0.0"):
        RegressorSettings(scale=0.0)
