"""Probabilities from logits, in float64."""

from collections.abc import Sequence

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis."""
    exact = np.asarray(logits, np.float64)
    with np.errstate(under="ignore"):
        powers = np.exp(exact - exact.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)), without overflow."""
    exact = np.asarray(logits, np.float64)
    with np.errstate(under="ignore"):
        small = np.exp(-np.abs(exact))  # at most 1
        return np.where(exact < 0, small, 1) / (1 + small)


def logit(probabilities: np.ndarray) -> np.ndarray:
    """Return the inverse of `sigmoid`, infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities) - np.log1p(-probabilities)


def average_softmax(members: Sequence[np.ndarray]) -> np.ndarray:
    """Return logits whose softmax is the mean of the members', -inf where that is 0."""
    with np.errstate(divide="ignore"):
        return np.log(np.mean([softmax(logits) for logits in members], axis=0))
