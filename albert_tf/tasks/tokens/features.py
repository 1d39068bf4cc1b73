"""Windows of pieces for texts, with the tags of their words."""

import dataclasses
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import InputError, shortened
from albert_tf.tasks.features import Features, PartFeatures, Sequences
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.model import IGNORED, OUTSIDE, TokenSettings, tag_of
from albert_tf.tasks.windows import Windows, cut_windows
from albert_tf.text.alignment import Pieces, align
from albert_tf.text.ragged import ragged_ranges
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.words import codes_of, in_ranges, invisible_bounds, word_bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenFeatures(PartFeatures):
    """N windows of texts, [CLS] pieces [SEP]; those of a text are adjacent, and each has one.

    The words of all texts, U in number, are each predicted once: at their first piece, in the
    window where it has the most context. The target `label`, int32 [N, `seq_length`], is the tag
    there, and `IGNORED` elsewhere.

    Attributes:
      word_example, word_window, word_position: int32 [U], the example, the window and the position
        in the window of each word.
      word_first, word_end: int32 [U], the characters [first, end) of the word in its text.
      inexact: the number of labeled spans that begin or end inside a word.
      unseen: the number of labeled spans that contain a token without a word, because it has no
        visible character.
    """

    word_example: np.ndarray
    word_window: np.ndarray
    word_position: np.ndarray
    word_first: np.ndarray
    word_end: np.ndarray
    inexact: int = 0
    unseen: int = 0

    @property
    def word_bounds(self) -> np.ndarray:
        """The first word of each text, and the number of words, int64 [texts + 1]."""
        return np.searchsorted(self.word_example, np.arange(self.num_examples + 1)).astype(np.int64)

    def of_words(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the words, [U, ...], from those of all positions, [N, S, ...]."""
        return values[self.word_window, self.word_position]

    def notes(self) -> list[str]:
        """Return notes on labels that cannot be predicted exactly."""
        notes = []
        if self.inexact:
            notes.append(
                f"{self.inexact:,} labeled span(s) begin or end inside a word, so they cannot be "
                "predicted exactly; training extends them to whole words"
            )
        if self.unseen:
            notes.append(
                f"{self.unseen:,} labeled span(s) contain a token without a visible character, so "
                "they cannot be predicted exactly; its tag is always O"
            )
        return notes


def featurize_tokens(
    examples: Sequence[TokenExample], tokenizer: Tokenizer, task: TokenSettings
) -> TokenFeatures:
    """Build the windows of texts; the target `label` exists if every example has entities.

    Raises:
      InputError: an example's tokens are not pairs of integers, are not in order, overlap, or are
        not within its text.
    """
    texts = [example.text for example in examples]
    pieces = align(texts, tokenizer)
    for number, example in enumerate(examples):
        if example.tokens is not None:
            _require_spans(number, example.tokens, len(example.text))
    limit = np.full(len(texts), task.seq_length - 2)
    windows = cut_windows(pieces.counts.astype(np.int64), limit, task.doc_stride)
    base = np.cumsum(pieces.counts) - pieces.counts
    window, position = _owners(windows)  # of every piece, because each has one owner
    row: np.ndarray = np.repeat(np.arange(len(texts)), pieces.counts)
    word, first, end = _words(texts, pieces)
    features = TokenFeatures(
        sequences=_sequences(pieces, base, windows, tokenizer),
        seq_length=task.seq_length,
        example=windows.example.astype(np.int32),
        word_example=row[word].astype(np.int32),
        word_window=window[word].astype(np.int32),
        word_position=position[word].astype(np.int32),
        word_first=first,
        word_end=end,
    )
    if any(example.entities is None for example in examples):
        return features
    tags, inexact, unseen = _tags(examples, features, task)
    label: np.ndarray = np.full([len(windows.example), task.seq_length], IGNORED, np.int32)
    label[features.word_window, features.word_position] = tags
    return dataclasses.replace(features, targets={"label": label}, inexact=inexact, unseen=unseen)


def words_per_window(features: Features) -> float:
    """Return the mean number of words of a window whose tags or teacher's outputs are known."""
    label = features.targets["label"]
    is_word = label != IGNORED if label.ndim == 2 else ~np.isnan(label[:, :, 0])
    return max(1.0, round(np.count_nonzero(is_word) / max(1, len(label)), 2))


def _require_spans(number: int, tokens: Iterable[Any], limit: int) -> None:
    begin = 0
    for token in tokens:
        try:
            start, end = map(operator.index, token)
        except (TypeError, ValueError):  # words, or no pairs
            start = end = -1
        if not begin <= start <= end <= limit:
            raise InputError(
                "`tokens` must be the characters [start, end) of each token: pairs of integers, in "
                f"order, without overlap and within the text. Received in example {number}, of "
                f"{limit:,} characters: {shortened(token)} after character {begin:,}."
            )
        begin = end


def _words(texts: Sequence[str], pieces: Pieces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first piece of each word, int64 [U], and its characters [first, end), int32 [U].

    That piece is no space, begins after the pieces before it, and its first character does not join
    the character before it to a word. Invisible characters at the ends of a word do not belong to
    it; without others there is no word.
    """
    joined = "".join(f"\n{text}" for text in texts) + "\n"  # line breaks join nothing
    codes = codes_of(joined)
    joins, is_visible = in_ranges(codes, word_bounds()), ~in_ranges(codes, invisible_bounds())
    lengths: np.ndarray = np.array([len(text) + 1 for text in texts], np.int64)
    base: np.ndarray = np.repeat(np.cumsum(lengths) - lengths + 1, pieces.counts)
    solid = np.flatnonzero(pieces.last >= pieces.first)  # no spaces
    first, last = ((base + offsets)[solid] for offsets in (pieces.first, pieces.last))
    is_joined = joins[first] & joins[first - 1]
    word = solid[(first > np.append(-1, last[:-1])) & ~is_joined]
    following: np.ndarray = np.append(word[1:], len(base))
    final = np.minimum(following, np.repeat(np.cumsum(pieces.counts), pieces.counts)[word]) - 1
    visible = np.flatnonzero(is_visible)
    visible_before: np.ndarray = np.append(0, np.cumsum(is_visible))
    begin = visible_before[(base + pieces.first)[word]]
    limit = visible_before[(base + pieces.reach)[final] + 1]
    word, begin, limit = (values[limit > begin] for values in (word, begin, limit))
    ends = visible[limit - 1] + 1 - base[word]
    return word, (visible[begin] - base[word]).astype(np.int32), ends.astype(np.int32)


def _owners(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Return for every piece its window and its position there, int64 [P]."""
    count = windows.owned_to - windows.owned_from
    window: np.ndarray = np.repeat(np.arange(len(count)), count)
    return window, ragged_ranges(windows.owned_from - windows.offset + 1, count)


def _sequences(
    pieces: Pieces, base: np.ndarray, windows: Windows, tokenizer: Tokenizer
) -> Sequences:
    special, lengths = tokenizer.special, np.asarray(windows.length + 2)
    end = np.cumsum(lengths)
    begin = end - lengths
    ids = np.empty(lengths.sum(), np.int32)
    ids[begin], ids[end - 1] = special.cls, special.sep
    source = ragged_ranges(base[windows.example] + windows.offset, windows.length)
    ids[ragged_ranges(begin + 1, windows.length)] = pieces.ids[source]
    short: np.ndarray = lengths.astype(np.int32)
    return Sequences(ids, short, short, special.pad, np.zeros(len(lengths), bool))


def _tags(
    examples: Sequence[TokenExample], features: TokenFeatures, task: TokenSettings
) -> tuple[np.ndarray, int, int]:
    """Return the words' tags, int32 [U], and the numbers of inexact and of unseen spans."""
    numbers = {label: number for number, label in enumerate(task.labels)}
    bounds = features.word_bounds
    default = IGNORED if task.scheme == "words" else OUTSIDE
    tags: np.ndarray = np.full(len(features.word_first), default)
    inexact = unseen = 0
    for row, example in enumerate(examples):
        if not example.entities:
            continue
        words = slice(bounds[row], bounds[row + 1])
        first, end = features.word_first[words], features.word_end[words]
        begins, stops = np.array([span[:2] for span in example.entities]).T
        label = np.array([numbers[span[2]] for span in example.entities])
        span: Any = np.searchsorted(stops, first, side="right")  # the first that ends in the word
        span[span == len(begins)] = len(begins) - 1
        is_inside = (begins[span] < end) & (stops[span] > first)
        is_begin = is_inside & (np.append(-1, np.where(is_inside, span, -1)[:-1]) != span)
        if task.scheme == "words":
            new = np.where(is_begin, label[span], IGNORED)
        else:
            new = np.where(is_inside, tag_of(label[span], is_begin), OUTSIDE)
        tags[words] = new
        if example.tokens is None:
            inexact += int(np.count_nonzero(~(np.isin(begins, first) & np.isin(stops, end))))
        else:
            _, has_word = first_words(example.tokens, first)
            wordless = np.array(example.tokens)[~has_word, 0]
            around: Any = np.searchsorted(stops, wordless, side="right")
            is_inside = np.append(begins, np.inf)[around] <= wordless
            unseen += len(np.unique(around[is_inside]))
    return tags.astype(np.int32), inexact, unseen


def first_words(
    tokens: Sequence[tuple[int, int]], first: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each token's first word, and whether it has one.

    `first` are the first characters of the words, ascending.
    """
    begins, ends = np.array(tokens, np.int64).reshape(-1, 2).T
    word: Any = np.searchsorted(first, begins)
    return word, np.append(first, np.iinfo(np.int32).max)[word] < ends
