"""Rankings as SavedModels: query and candidates in, scores out."""

import tensorflow as tf

from albert_tf.graph.buckets import run_in_buckets
from albert_tf.graph.signatures import (
    IDS,
    Answer,
    checked_inputs,
    require_same_size,
    signature,
    untracked,
)
from albert_tf.models.encoder import INPUTS
from albert_tf.tasks.ranking.losses import ABSENT
from albert_tf.tasks.ranking.model import RankingModel
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.tokenizer import Tokenizer


class RankingModule(tf.Module):
    """A module that scores and ranks the candidates of queries.

    Signatures:
      serving_default: `query` string [B], `candidates` string [B, N], N at least 1.
      padded: the same for queries with different numbers of candidates, `num_candidates` int32
        [B], each from 1 to M. `candidates` is string [B, M]; of each row only the first
        `num_candidates` count.
      tokens: the encoder's inputs, int32 [B, S], of pairs of a query and a candidate.
    Outputs: `scores` float32 [B, N] or [B, M], -1e9 where there is no candidate; and `ranking` of
    the same shape, int32, the indices of the candidates from the best. Those of `padded` end with
    the indices of no candidates. `tokens` returns `scores` [B] alone.
    """

    def __init__(self, model: RankingModel, tokenizer: Tokenizer) -> None:
        super().__init__(name="ranking")
        self._score, self._weights = untracked(model), model.variables
        self._seq_length = model.task.seq_length
        self._tokenizer = GraphTokenizer(tokenizer)
        self._max_positions = model.encoder.config.max_positions

    def signatures(self) -> dict[str, object]:
        """Return the signatures that the class describes."""
        texts = [
            tf.TensorSpec([None], tf.string, "query"),
            tf.TensorSpec([None, None], tf.string, "candidates"),
        ]
        num_candidates = tf.TensorSpec([None], tf.int32, "num_candidates")
        return {
            "serving_default": signature(self._serve, texts),
            "padded": signature(self._padded, [*texts, num_candidates]),
            "tokens": signature(self._tokens, [IDS[name] for name in INPUTS]),
        }

    def _serve(self, query: tf.Tensor, candidates: tf.Tensor) -> Answer:
        count = tf.shape(candidates)[1]
        check = tf.debugging.Assert(count >= 1, ["`candidates` must have at least 1 column."])
        with tf.control_dependencies([check]):
            candidates = tf.identity(candidates)
        return _ranked(self._scores(query, candidates))

    def _padded(self, query: tf.Tensor, candidates: tf.Tensor, num_candidates: tf.Tensor) -> Answer:
        named = {"query": query, "candidates": candidates, "num_candidates": num_candidates}
        query, candidates, num_candidates = require_same_size(named)
        most = tf.shape(candidates)[1]
        message = "`num_candidates` must be from 1 to the number of columns of `candidates`."
        is_valid = tf.reduce_all((num_candidates >= 1) & (num_candidates <= most))
        check = tf.debugging.Assert(is_valid, [message])
        with tf.control_dependencies([check]):
            is_candidate = tf.sequence_mask(num_candidates, most)  # [B, M]
        scores = self._scores(query, tf.where(is_candidate, candidates, ""))
        return _ranked(tf.where(is_candidate, scores, ABSENT))

    def _scores(self, query: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
        """Return the scores [B, N] of strings [B] and [B, N]."""
        query, candidates = require_same_size({"query": query, "candidates": candidates})
        shape = tf.shape(candidates)
        first = self._tokenizer(query)[:, : self._seq_length]  # no candidate leaves it more
        second = self._tokenizer(tf.reshape(candidates, [-1]))
        query_row = tf.repeat(tf.range(shape[0]), shape[1])  # [B N]
        pieces = tf.gather(first.row_lengths(), query_row) + second.row_lengths()
        lengths = tf.minimum(tf.cast(pieces, tf.int32) + 3, self._seq_length)

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            pair = [tf.gather(first, tf.gather(query_row, rows)), tf.gather(second, rows)]
            return {"scores": self._score(self._tokenizer.pack(pair, width))}

        empty = {"scores": tf.zeros(tf.shape(lengths))}
        scores = run_in_buckets(lengths, run, empty, self._seq_length)["scores"]
        return tf.reshape(scores, shape)  # [B, N]

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        return {"scores": self._score(checked_inputs(ids, self._max_positions))}


def _ranked(scores: tf.Tensor) -> Answer:
    """Return the answer for scores [B, N]; of equal scores, the earlier candidate comes first."""
    ranking = tf.argsort(scores, direction="DESCENDING", stable=True)
    return {"scores": scores, "ranking": ranking}
