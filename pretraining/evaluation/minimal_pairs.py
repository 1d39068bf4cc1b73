"""Evaluation on minimal pairs: the preference of a model for the grammatical sentence of two.

The format is BLiMP's (Warstadt et al. 2020, arXiv 1912.00582). A sentence's score is its
pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659): each piece is masked in turn, and the
log-probabilities that the model then gives to the masked pieces are added. The second score also
masks the later pieces of the same word, which would otherwise give the piece away (Kauf and Ivanova
2023, arXiv 2305.10588).
"""

import dataclasses
import glob
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.json_text import json_object
from albert_tf.runtime.files.text_files import lines_of
from albert_tf.runtime.report_text import percent_with_error
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.progress import Progress
from albert_tf.training.step import parallel_parts, split_batch

SCORES = ("pll", "pll_word")
POSITIONS_PER_BATCH, MAX_ROWS = 8192, 1024  # each row has logits of the whole vocabulary
MASKED_COPIES = 2**9  # batches whose masked copies are in memory at once


@dataclasses.dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one respect.

    Attributes:
      good: the grammatical sentence.
      bad: the ungrammatical sentence.
      paradigm: the kind of difference, BLiMP's `UID`.
      phenomenon: a group of paradigms, BLiMP's `linguistics_term`.
    """

    good: str
    bad: str
    paradigm: str
    phenomenon: str


def read_minimal_pairs(folder: str) -> list[MinimalPair]:
    """Read the pairs in a folder's .jsonl files, plain or compressed.

    Each line is blank or an object with `sentence_good`, `sentence_bad` and, optionally, `UID` (by
    default the file's name) and `linguistics_term` (by default the paradigm).

    Raises:
      InputNotFoundError: the folder has no such files.
      InputError: a line is not such an object; the message names file and line.
    """
    if not os.path.isdir(folder):
        raise InputNotFoundError(
            f"--minimal_pairs={folder} is not a folder (working directory {os.getcwd()}). Pass the "
            "folder with the minimal pairs."
        )
    files = sorted(glob.glob(os.path.join(glob.escape(folder), "*.jsonl*")))
    files = [path for path in files if format_of(path) == ".jsonl"]
    if not files:
        raise InputNotFoundError(
            f"--minimal_pairs={folder} has no .jsonl file, plain or compressed. Pass the folder "
            "with the minimal pairs."
        )
    pairs = [pair for path in files for pair in _pairs_of(path)]
    if not pairs:
        raise InputError(f"--minimal_pairs={folder}: its {len(files)} file(s) hold no pairs.")
    return pairs


def _pairs_of(path: str) -> Iterator[MinimalPair]:
    name = os.path.basename(path).partition(".jsonl")[0]
    for number, line in lines_of(path, "--minimal_pairs"):
        if not line.strip():
            continue
        record = json_object(line, f"{path}:{number}")
        for key in ("sentence_good", "sentence_bad"):
            if not isinstance(record.get(key), str):
                raise InputError(
                    f"{path}:{number} must have a sentence under `{key}`. "
                    f"Received: {line.strip()[:80]!r}."
                )
        paradigm = str(record.get("UID") or name)
        phenomenon = str(record.get("linguistics_term") or paradigm)
        yield MinimalPair(record["sentence_good"], record["sentence_bad"], paradigm, phenomenon)


def evaluate_minimal_pairs(
    model: AlbertPretrainer,
    tokenizer: Tokenizer,
    pairs: Sequence[MinimalPair],
    strategy: tf.distribute.Strategy | None = None,
) -> dict[str, Any]:
    """Return the share of pairs whose good sentence scores strictly higher; ties count as wrong.

    For each score in `SCORES` the result has `accuracy/SCORE` and `standard_error/SCORE` over all
    pairs, and the same for each phenomenon and paradigm under `phenomena` and `paradigms`. The
    error is that of drawing as many pairs of each paradigm: sqrt(sum n p (1 - p)) / N. `count`
    is the number of pairs. `skipped` is the number of pairs with a sentence that is empty or longer
    than `longest` pieces, the model's limit; no metric includes them.

    Raises:
      InputError: all pairs are skipped.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    ids = dict(zip(texts, map(tuple, tokenizer.encode_batch(texts)), strict=True))
    longest = model.config.max_positions - 2
    scored_pairs = [p for p in pairs if all(0 < len(ids[t]) <= longest for t in (p.good, p.bad))]
    if not scored_pairs:
        raise InputError(
            f"--minimal_pairs: all {len(pairs):,} pairs have a sentence that is empty or longer "
            f"than {longest} pieces, the model's limit."
        )
    # Sentences with equal pieces are scored once, so that their scores cannot differ by rounding.
    sentences = list(dict.fromkeys(ids[text] for p in scored_pairs for text in (p.good, p.bad)))
    scores = Scorer(model, tokenizer, devices.num_parallel_parts(strategy) if strategy else 1)(
        sentences
    )
    # [pairs, SCORES]; also False where a score is NaN
    right = np.array([scores[ids[p.good]] > scores[ids[p.bad]] for p in scored_pairs], bool)
    paradigms = np.array([pair.paradigm for pair in scored_pairs])
    result: dict[str, Any] = {"skipped": len(pairs) - len(scored_pairs), "longest": longest}
    result |= _figures(right, paradigms)
    phenomena = np.array([pair.phenomenon for pair in scored_pairs])
    for name, groups in (("phenomena", phenomena), ("paradigms", paradigms)):
        members = {group: groups == group for group in np.unique(groups).tolist()}
        result[name] = {
            group: _figures(right[rows], paradigms[rows]) for group, rows in members.items()
        }
    return result


def _figures(right: np.ndarray, paradigms: np.ndarray) -> dict[str, float]:
    """Return the figures of some pairs, bool [N, len(SCORES)], of these paradigms, str [N]."""
    groups = [right[paradigms == paradigm] for paradigm in np.unique(paradigms)]
    errors = np.sqrt(sum(group.var(0) * len(group) for group in groups)) / len(right)
    figures: dict[str, float] = {}
    for name, share, error in zip(SCORES, right.mean(0).tolist(), errors.tolist(), strict=True):
        figures |= {f"accuracy/{name}": share, f"standard_error/{name}": error}
    return figures | {"count": len(right)}


class Scorer:
    """A function from sentences, given as ids, to their `SCORES`.

    Args:
      model: the model that scores.
      tokenizer: the model's tokenizer.
      cores: the number of cores that score a batch in parallel.
      positions_per_batch: at most, with the special pieces.
    """

    def __init__(
        self,
        model: AlbertPretrainer,
        tokenizer: Tokenizer,
        cores: int = 1,
        positions_per_batch: int = POSITIONS_PER_BATCH,
    ) -> None:
        self._special, self._starts = tokenizer.special, tokenizer.is_word_start
        self._cores, self._log_probabilities = cores, _log_probabilities(model, cores)
        self._positions = positions_per_batch

    def __call__(self, sentences: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], np.ndarray]:
        """Return the scores of each sentence, float64 [len(SCORES)]; no sentence may be empty."""
        of_length: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for sentence in sentences:
            of_length[len(sentence)].append(sentence)
        scores: dict[tuple[int, ...], np.ndarray] = {}
        with Progress("sentences", len(sentences)) as progress:
            for length, group in sorted(of_length.items()):
                # The masked copies of a sentence take length^2 numbers.
                step = max(1, MASKED_COPIES * self._positions // length**2)
                for start in range(0, len(group), step):
                    part = group[start : start + step]
                    scores |= dict(
                        zip(part, self._score(np.array(part, np.int32), length), strict=True)
                    )
                    progress.advance(len(part))
        return scores

    def _score(self, ids: np.ndarray, length: int) -> np.ndarray:
        """Return the scores, float64 [N, len(SCORES)], of ids [N, length]."""
        # A row for each piece of each sentence, its target.
        sentence, target = np.divmod(np.arange(ids.size, dtype=np.int32), length)
        rows, position = ids[sentence], np.arange(length)
        alone = position == target[:, None]
        word = np.cumsum(self._starts[rows], 1)
        later = position >= target[:, None]
        rest = later & (word == np.take_along_axis(word, target[:, None], 1))
        single = self._masked_scores(rows, alone, target)
        whole, differs = single.copy(), (rest != alone).any(1)
        whole[differs] = self._masked_scores(rows[differs], rest[differs], target[differs])
        return np.stack([single, whole], 1).reshape(-1, length, len(SCORES)).sum(1)

    def _masked_scores(
        self, rows: np.ndarray, hidden: np.ndarray, target: np.ndarray
    ) -> np.ndarray:
        """Return the log-probability of the piece `target` of each row, float64 [rows].

        The pieces in `hidden`, bool [rows, length] like `rows`, are masked.
        """
        count, length = rows.shape
        masked = np.where(hidden, np.int32(self._special.mask), rows)
        edges = [np.full([count, 1], i) for i in (self._special.cls, self._special.sep)]
        words = np.concatenate([edges[0], masked, edges[1]], 1).astype(np.int32)
        pieces = np.take_along_axis(rows, target[:, None], 1)[:, 0]
        arrays: tuple[np.ndarray, ...] = words, target + 1, pieces
        size = min(MAX_ROWS, self._positions // (length + 2)) // self._cores * self._cores
        size = max(self._cores, size)
        answers: np.ndarray = np.empty(count)
        for start in range(0, count, size):
            batch = [array[start : start + size] for array in arrays]
            filled = [np.resize(array, (size, *array.shape[1:])) for array in batch]
            values = self._log_probabilities(*map(tf.constant, filled)).numpy()
            answers[start : start + size] = values[: len(batch[0])]
        return answers


def _log_probabilities(model: AlbertPretrainer, cores: int) -> Callable[..., tf.Tensor]:
    """Return a function from words, positions and pieces to the pieces' log-probabilities.

    Words are int [B, S], positions and pieces int [B] and log-probabilities float32 [B].
    """

    def of_part(words: tf.Tensor, positions: tf.Tensor, pieces: tf.Tensor) -> tf.Tensor:
        inputs = {
            "input_word_ids": words,
            "input_mask": tf.ones_like(words),
            "input_type_ids": tf.zeros_like(words),
            "masked_lm_positions": positions[:, None],
        }
        logits = model(inputs)["mlm_logits"][:, 0]
        return tf.gather(tf.nn.log_softmax(logits), pieces, batch_dims=1)

    @tf.function(reduce_retracing=True, autograph=False)
    def log_probabilities(*arrays: tf.Tensor) -> tf.Tensor:
        split = split_batch(arrays, cores)
        like = tf.TensorSpec([None])
        parts = parallel_parts(lambda n: of_part(*(array[n] for array in split)), cores, like)
        return tf.concat(parts, 0)

    return log_probabilities


def report(result: dict[str, Any]) -> str:
    """Return the metrics as a readable table."""
    lines = [
        f"{'minimal pairs':<28}  {'one piece masked':^16}  {'rest of word too':^16}  {'pairs':>6}"
    ]
    for name, figures in [*result["phenomena"].items(), ("all", result)]:
        cells = [
            percent_with_error(
                figures[f"accuracy/{s}"], figures[f"standard_error/{s}"], figures["count"]
            )
            for s in SCORES
        ]
        lines.append(f"{name:<28}  {'  '.join(cells)}  {figures['count']:6,}")
    if result["skipped"]:
        lines.append(
            f"note: skipped pairs with a sentence that is empty or longer than the model's "
            f"{result['longest']} pieces: {result['skipped']:,}."
        )
    return "\n".join(lines)
