"""Windows of pieces for questions and contexts, with the positions of the answers.

A context that is longer than a window is split into several, `doc_stride` pieces apart. A piece in
several windows counts in the one where it has the most context (google-research/bert,
`run_squad.py`).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.tasks.features import PartFeatures, Sequences
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.windows import Windows, cut_windows
from albert_tf.text.alignment import Pieces, align
from albert_tf.text.ragged import ragged_ranges
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.words import visible_part


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanFeatures(PartFeatures):
    """N windows; those of an example are adjacent, and each example has at least one.

    Attributes:
      owned_from, owned_to: int32 [N], the positions [from, to) of the window at which an answer may
        begin: those where no other window of the example has more context.
      piece: int32 [N], the index in `first` and `reach` of the window's first piece of context.
      first, reach: int32 [P], the first character of each piece of the contexts, and the last
        character before the next piece; see `albert_tf.text.alignment.Pieces`.
      lost: the examples whose first answer, the one to train on, is in no window, because it is too
        long or has no piece of its own.
      undecodable: the examples for which decoding cannot return any annotator's answer: the answer
        is in no window, does not end in the window that owns its first piece, is longer than
        `task.max_answer_length`, or begins or ends inside a piece.
    """

    owned_from: np.ndarray
    owned_to: np.ndarray
    piece: np.ndarray
    first: np.ndarray
    reach: np.ndarray
    lost: tuple[int, ...]
    undecodable: tuple[int, ...]

    def notes(self) -> list[str]:
        """Return notes on truncated questions and on lost or undecodable answers, one line each."""
        notes = super().notes()
        if self.lost:
            notes.append(
                f"{len(self.lost):,} answer(s) are in no window, so training would treat them as "
                "absent; a lower `task.doc_stride` loses fewer"
            )
        if self.undecodable:
            notes.append(
                f"{len(self.undecodable):,} question(s) have no answer that can be predicted: each "
                "is in no window, longer than `task.max_answer_length`, or begins or ends inside a "
                "piece"
            )
        return notes

    def length_notes(self, totals: Mapping[str, int]) -> list[str]:
        """Return a note on truncated questions, if there are any."""
        if not totals["cut"]:
            return []
        limit = "`task.query_length`, or half of the window,"
        return [
            f"{totals['cut']:,} of {totals['examples']:,} questions are longer than {limit} and "
            "are truncated"
        ]


def featurize_spans(
    examples: Sequence[SpanExample], tokenizer: Tokenizer, task: SpanSettings
) -> SpanFeatures:
    """Build [CLS] question [SEP] part of the context [SEP] for each window.

    The targets are `start_position`, `end_position` [N] and, with `task.answerable`,
    `is_impossible` [N]. They exist if every example has answers, of which the first is used, or is
    known to have none. A window without the answer has both positions at [CLS].
    """
    pieces, base, size = _contexts(examples, tokenizer)
    questions, question_lengths, is_cut = _questions(examples, tokenizer, task)
    windows = cut_windows(size, task.seq_length - 3 - question_lengths, task.doc_stride)
    before = question_lengths[windows.example] + 2  # [CLS] question [SEP]
    piece = base[windows.example] + windows.offset
    answers = _answers(examples, pieces, base, size)
    targets, lost = _targets(examples, answers, windows, before)
    hints = {}
    if task.answerable and targets:
        hints = {"start_position": targets["start_position"]}
    else:
        targets.pop("is_impossible", None)
    return SpanFeatures(
        sequences=_sequences(
            questions, question_lengths, is_cut, pieces.ids, piece, windows, tokenizer
        ),
        seq_length=task.seq_length,
        targets=targets,
        hints=hints,
        example=windows.example.astype(np.int32),
        owned_from=(before + windows.owned_from - windows.offset).astype(np.int32),
        owned_to=(before + windows.owned_to - windows.offset).astype(np.int32),
        piece=piece.astype(np.int32),
        first=pieces.first,
        reach=pieces.reach,
        lost=lost,
        undecodable=_undecodable(answers, windows, task.max_answer_length),
    )


def _contexts(
    examples: Sequence[SpanExample], tokenizer: Tokenizer
) -> tuple[Pieces, np.ndarray, np.ndarray]:
    """Return the pieces of all contexts, without duplicates.

    Also return the index of the first piece and the number of pieces of each example's context.
    """
    texts = list(dict.fromkeys(example.context for example in examples))
    rows = {text: row for row, text in enumerate(texts)}
    pieces = align(texts, tokenizer)
    row = np.array([rows[example.context] for example in examples], np.int64)
    return pieces, (np.cumsum(pieces.counts) - pieces.counts)[row], pieces.counts[row]


def _questions(
    examples: Sequence[SpanExample], tokenizer: Tokenizer, task: SpanSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids of all questions end to end, their lengths, and which are truncated."""
    max_pieces = task.max_question_pieces
    encoded = tokenizer.encode_batch([example.question for example in examples])
    lengths = np.array([min(len(ids), max_pieces) for ids in encoded], np.int64)
    flat = (i for ids in encoded for i in ids[:max_pieces])
    is_cut = np.array([len(ids) > max_pieces for ids in encoded], bool)
    return np.fromiter(flat, np.int32, lengths.sum()), lengths, is_cut


def _sequences(
    questions: np.ndarray,
    question_lengths: np.ndarray,
    is_cut: np.ndarray,
    contexts: np.ndarray,
    piece: np.ndarray,
    windows: Windows,
    tokenizer: Tokenizer,
) -> Sequences:
    """Copy the parts of each window to their places in one array of ids."""
    example, special = windows.example, tokenizer.special
    lengths = question_lengths[example] + windows.length + 3
    end = np.cumsum(lengths)
    begin = end - lengths
    ids = np.empty(lengths.sum(), np.int32)
    ids[begin] = special.cls
    ids[begin + question_lengths[example] + 1] = ids[end - 1] = special.sep
    source = ragged_ranges(
        (np.cumsum(question_lengths) - question_lengths)[example], question_lengths[example]
    )
    ids[ragged_ranges(begin + 1, question_lengths[example])] = questions[source]
    ids[ragged_ranges(begin + question_lengths[example] + 2, windows.length)] = contexts[
        ragged_ranges(piece, windows.length)
    ]
    first = (question_lengths[example] + 2).astype(np.int32)
    return Sequences(ids, lengths.astype(np.int32), first, special.pad, is_cut[example])


def _answers(
    examples: Sequence[SpanExample], pieces: Pieces, base: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Return the different answers of each example, in order: int64 [A, 4].

    The columns are the example; the answer's first and its last piece in the context, -1 if it has
    none; and 1 if these pieces give the answer letter by letter.
    """
    answers = []
    for row, example in enumerate(examples):
        context = slice(base[row], base[row] + size[row])
        for start, text in dict.fromkeys(example.answers):
            before, visible = visible_part(text)
            begin, end = start + before, start + before + len(visible) - 1
            first = int(np.searchsorted(pieces.last[context], begin))
            last = int(np.searchsorted(pieces.first[context], end, side="right")) - 1
            if 0 <= start and begin <= end < len(example.context) and first <= last:
                begin, end = int(pieces.first[context][first]), int(pieces.reach[context][last])
                _, found_text = visible_part(example.context[begin : end + 1])
                answers.append((row, first, last, found_text == visible))
            else:
                answers.append((row, -1, -1, False))
    return np.array(answers, np.int64).reshape(-1, 4)


def _targets(
    examples: Sequence[SpanExample], answers: np.ndarray, windows: Windows, before: np.ndarray
) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """Return the targets of each window, and the examples whose first answer is in none."""
    if not all(example.answers or example.is_impossible for example in examples):
        return {}, ()
    spans = np.full([len(examples), 2], -1)
    rows, index = np.unique(answers[:, 0], return_index=True)
    spans[rows] = answers[index, 1:3]
    first, last = (spans[windows.example] - windows.offset[:, None]).T
    inside = (first >= 0) & (last < windows.length) & (spans[windows.example, 0] >= 0)
    has_window = np.bincount(windows.example, inside, minlength=len(examples)) > 0
    return {
        "start_position": np.where(inside, before + first, 0).astype(np.int32),
        "end_position": np.where(inside, before + last, 0).astype(np.int32),
        "is_impossible": (~inside).astype(np.float32),
    }, tuple(rows[~has_window[rows]].tolist())


def _undecodable(answers: np.ndarray, windows: Windows, max_length: int) -> tuple[int, ...]:
    """Return the examples that have answers, but none that `answers.decode_spans` can return."""
    example, first, last, is_whole = answers.T
    size = int(windows.owned_to.max(initial=0)) + 1
    owners = windows.example * size + windows.owned_from  # ascending
    owner = np.searchsorted(owners, example * size + first, side="right") - 1
    is_decodable = (first >= 0) & (last < (windows.offset + windows.length)[owner])
    is_decodable &= (last - first < max_length) & (is_whole > 0)
    return tuple(np.setdiff1d(example, example[is_decodable]).tolist())
