"""The choice of answers, inside a graph.

These functions correspond to `tasks.spans.answers`, which uses arrays. Shapes: B contexts, W
windows of all contexts, K candidates of a window, C characters of all contexts, N possible answer
spans.
"""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from albert_tf.graph.windows import GraphWindows
from albert_tf.tasks.spans.heads import may_answer
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.text.graph_aligner import AlignedPieces, visible_ranges

_HASH_BASE, _EXAMPLE_FACTOR = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03  # odd, without a bit pattern


class Spans(NamedTuple):
    """N spans of characters.

    Attributes:
      example: int32 [N], the example of each span.
      begin: int32 [N], the first character, counted over all contexts end to end.
      end: int32 [N], one past the last character, counted likewise.
      score: float32 [N].
    """

    example: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor


def candidate_spans(
    outputs: Mapping[str, tf.Tensor],
    windows: GraphWindows,
    pieces: AlignedPieces,
    task: SpanSettings,
) -> Spans:
    """Return the candidates [W, K] that may be answers, sorted by example and then best first.

    They are stripped of invisible characters; candidates that contain nothing else are dropped.
    """
    # The piece of the context that position 0 of each window corresponds to.
    shift = (windows.offset - windows.before)[:, tf.newaxis]
    start, end = outputs["start"] + shift, outputs["end"] + shift
    indices = tf.where(
        may_answer(
            *(start, end, outputs["score"]),
            (windows.owned_from[:, tf.newaxis], windows.owned_to[:, tf.newaxis]),
            (windows.offset + windows.length)[:, tf.newaxis],
            task.max_answer_length,
        )
    )
    example = tf.gather(windows.example, indices[:, 0])
    base = tf.gather(tf.cast(pieces.ids.row_starts(), tf.int32), example)
    origin = tf.gather(tf.cast(pieces.codes.row_starts(), tf.int32), example)
    start, end, score = (tf.gather_nd(v, indices) for v in (start, end, outputs["score"]))
    begin = origin + tf.gather(pieces.first, base + start)
    end = origin + tf.gather(pieces.reach, base + end) + 1
    return _sorted_by_score(_stripped(Spans(example, begin, end, score), pieces.codes.values))


def best_spans(
    spans: Spans, codes: tf.Tensor, count: tf.Tensor, n_best: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the best span of each of `count` examples.

    `codes`, int32 [C], are the code points of all contexts.

    Returns:
      The span's begin and end, int32 [B], equal if an example has no span; and its probability
      among the `n_best` best spans with different texts, float32 [B], 0 if there is no span.
    """
    example, begin, end, score = _deduplicated(spans, codes)
    bounds = tf.searchsorted(example, tf.range(count + 1))  # each example's first span
    first, has_one = bounds[:-1], bounds[1:] > bounds[:-1]
    rank = tf.range(tf.size(example)) - tf.gather(first, example)

    def of_first(values: tf.Tensor) -> tf.Tensor:
        padding = tf.zeros([1], values.dtype)  # `first` may point past the last span
        return tf.where(has_one, tf.gather(tf.concat([values, padding], 0), first), padding)

    exact = tf.cast(score, tf.float64)
    powers = tf.exp(exact - tf.gather(of_first(exact), example))
    powers = tf.where(rank < n_best, powers, tf.zeros_like(powers))
    total = tf.math.unsorted_segment_sum(powers, example, count)  # the best span contributes 1
    probability = tf.math.divide_no_nan(tf.ones_like(total), total)
    return of_first(begin), of_first(end), tf.cast(probability, tf.float32)


def _stripped(spans: Spans, codes: tf.Tensor) -> Spans:
    """Strip invisible characters from the spans, and drop spans that contain nothing else."""
    kept, begin, end = visible_ranges(codes, spans.begin, spans.end)
    example, score = (tf.boolean_mask(value, kept) for value in (spans.example, spans.score))
    return Spans(example, begin, end, score)


def _sorted_by_score(spans: Spans) -> Spans:
    order = tf.argsort(spans.score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(spans.example, order), stable=True))
    return Spans(*(tf.gather(value, order) for value in spans))


def _deduplicated(spans: Spans, codes: tf.Tensor) -> Spans:
    """Keep only the first of an example's spans that have the same text.

    Texts are compared by a polynomial hash modulo 2^64 of their code points, so the cost does not
    depend on their length. Two different texts collide with a probability of about 2^-64.
    """
    size = tf.size(codes)
    powers = tf.math.cumprod(
        tf.fill([size + 1], tf.constant(_HASH_BASE, tf.uint64)), exclusive=True
    )
    terms = tf.cast(codes + 1, tf.uint64) * powers[:-1]
    prefix_hashes = tf.concat([tf.zeros([1], tf.uint64), tf.cumsum(terms)], 0)
    text = tf.gather(prefix_hashes, spans.end) - tf.gather(prefix_hashes, spans.begin)
    text *= tf.gather(powers, size - spans.begin)  # independent of its position
    text += tf.cast(spans.example, tf.uint64) * tf.constant(_EXAMPLE_FACTOR, tf.uint64)
    unique, number = tf.unique(text)
    index = tf.range(tf.size(number))
    first = tf.math.unsorted_segment_min(index, number, tf.size(unique))
    is_first = tf.equal(tf.gather(first, number), index)
    return Spans(*(tf.boolean_mask(value, is_first) for value in spans))
