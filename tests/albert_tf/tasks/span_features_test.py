"""Tests of windows, targets and places against hand-made ones and the reference's rules."""

import dataclasses

import numpy as np
import pytest

from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.spans.answers import decode_spans
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.features import featurize_spans
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.windows import cut_windows
from albert_tf.text.tokenizer import Normalization, Tokenizer, load_tokenizer
from finetuning.datasets.spans.squad_reader import questions_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENIZER = Tokenizer("\n".join([*SPECIAL, *LETTERS]).encode(), Normalization())
CONTEXT = " ".join(LETTERS[:10])  # a is 5, j is 14; letter i stands at character 2 i


def example(question="z y", answers=(), impossible=False, context=CONTEXT) -> SpanExample:
    return SpanExample(question, context, "q", tuple(answers), impossible)


def test_windows_by_hand():
    """Two pieces of question and five of context in ten: windows at 0, 3, 6 of ten pieces."""
    task = SpanSettings(seq_length=10, doc_stride=3, answerable=True)
    features = featurize_spans([example(answers=[(8, "e f")])], TOKENIZER, task)
    inputs, targets = features.batch(np.arange(3), 10)
    assert inputs["input_word_ids"].numpy().tolist() == [
        [2, 30, 29, 3, 5, 6, 7, 8, 9, 3],
        [2, 30, 29, 3, 8, 9, 10, 11, 12, 3],
        [2, 30, 29, 3, 11, 12, 13, 14, 3, 0],
    ]
    assert inputs["input_type_ids"].numpy().sum(axis=1).tolist() == [6, 6, 5]
    # "e f", pieces 4 and 5, is whole in the second window alone, which begins with piece 3.
    assert targets["start_position"].numpy().tolist() == [0, 5, 0]
    assert targets["end_position"].numpy().tolist() == [0, 6, 0]
    assert targets["is_impossible"].numpy().tolist() == [1, 0, 1]
    assert inputs["start_position"].numpy().tolist() == [0, 5, 0]
    # Pieces 3 and 4: left, right context 3, 1 | 0, 4 and 4, 0 | 1, 3. Pieces 6 and 7: 3, 1 | 0, 3
    # and 4, 0 | 1, 2. The better minimum, of equals the longer, then the first.
    assert features.owned_from.tolist() == [4, 5, 5] and features.owned_to.tolist() == [8, 8, 8]
    assert features.piece.tolist() == [0, 3, 6] and features.lost == ()
    assert features.first.tolist() == list(range(0, 20, 2))
    assert features.reach.tolist() == [*range(1, 18, 2), 18]


def test_a_long_question_and_one_that_leaves_no_room():
    task = SpanSettings(seq_length=11, query_length=3)
    features = featurize_spans([example("a b c d e f"), example()], TOKENIZER, task)
    lengths = features.sequences.first_lengths[features.example == 0]
    assert set(lengths.tolist()) == {5}  # [CLS] a b c [SEP]
    assert (features.cut, features.num_examples) == (1, 2)
    assert features.notes() == [
        "1 of 2 questions are longer than `task.query_length`, or half of the window, and are "
        "truncated"
    ]
    task = SpanSettings(seq_length=11, query_length=64)
    lengths = featurize_spans([example("a b c d e f")], TOKENIZER, task).sequences.first_lengths
    assert set(lengths.tolist()) == {6}  # half of the eight that are left


def reference_owners(
    size: int, max_length: int, stride: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """The windows and the owner of each piece, by the definition."""
    spans, start = [], 0
    while not spans or start < size:
        length = min(size - start, max_length)
        spans.append((start, length))
        if start + length == size:
            break
        start += min(length, stride)
    owners = []
    for piece in range(size):
        scores = [
            (100 * min(piece - s, s + n - 1 - piece) + n, -i)  # min + 0.01 n, as integers
            for i, (s, n) in enumerate(spans)
            if s <= piece < s + n
        ]
        owners.append(-max(scores)[1])
    return spans, owners


def test_windows_by_definition():
    cases = [
        (size, max_length, stride)
        for size in (0, 1, 5, 37, 64, 65, 99, 301, 700)
        for max_length in (1, 2, 7, 64, 317)
        for stride in (1, 2, 3, 16, 64, 128)
    ]
    for size, max_length, stride in cases:
        windows = cut_windows(np.array([3, size]), np.array([9, max_length]), stride)
        spans, owners = reference_owners(size, max_length, stride)
        mine = windows.example == 1
        assert list(zip(windows.offset[mine], windows.length[mine], strict=True)) == spans
        owned = np.full(size, -1)
        for i, (a, b) in enumerate(
            zip(windows.owned_from[mine], windows.owned_to[mine], strict=True)
        ):
            owned[a:b] = i
        assert owned.tolist() == owners, (size, max_length, stride)


def test_targets_need_every_answer():
    task = SpanSettings(seq_length=32)
    assert featurize_spans([example(answers=[(0, "a")]), example()], TOKENIZER, task).targets == {}
    known = [example(answers=[(0, "a")]), example(impossible=True)]
    features = featurize_spans(known, TOKENIZER, task)
    assert {k: v.tolist() for k, v in features.targets.items()} == {
        "start_position": [4, 0],
        "end_position": [4, 0],
    }
    assert features.hints == {}


def test_an_answer_that_no_window_holds_is_told():
    task = SpanSettings(seq_length=10, doc_stride=3)
    answers = [[(0, "a b c d e f")], [(1, " ")], [(18, "j k")], [(-4, "a")], [(0, "a ")]]
    features = featurize_spans([example(answers=a) for a in answers], TOKENIZER, task)
    assert features.lost == (0, 1, 2, 3)
    assert features.targets["start_position"].reshape(5, 3)[:, 0].tolist() == [0, 0, 0, 0, 4]


def test_answers_that_decoding_cannot_give():
    """Windows at 0, 3, 6 own the pieces 0 to 3, 4 to 6, 7 to 9 (see above); two pieces at most."""
    answers = [
        [(0, "a b")],
        [(2, "b c d")],  # of three pieces
        [(6, "d e")],  # in the first and the second window; "d" is the first one's
        [(6, "d e f")],  # of three pieces; and whole in a window that does not own "d"
        [(12, "g h")],  # "g" is the second window's, which ends with "h"
        [(6, "d e f"), (16, "i")],  # another annotator
        [(18, "j k")],  # in no window
        [],  # not known
    ]
    task = SpanSettings(seq_length=10, doc_stride=3, max_answer_length=2)
    features = featurize_spans([example(answers=a) for a in answers], TOKENIZER, task)
    assert features.undecodable == (1, 3, 6)
    task = SpanSettings(seq_length=10, doc_stride=3)
    features = featurize_spans([example(answers=a) for a in answers], TOKENIZER, task)
    assert features.undecodable == (3, 6)


def test_an_answer_that_ends_inside_a_piece_cannot_be_given():
    tokenizer = Tokenizer("\n".join([*SPECIAL, "ab", "c"]).encode(), Normalization())
    examples = [example(answers=[(0, text)], context="ab c") for text in ("ab", "a", "ab c ")]
    features = featurize_spans(examples, tokenizer, SpanSettings())
    assert (features.lost, features.undecodable) == ((), (1,))


@pytest.mark.parametrize("stride", [24, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "vocabulary", "single"),
    [
        ("xquad.zh", "albert_zh/vocab_chinese.txt", True),
        ("xquad.de", "albert_en_30k/spiece.model", True),
        ("squad2_subset_a", "albert_en_30k/spiece.model", False),
    ],
)
def test_undecodable_is_what_decoding_loses(shared_data, name, vocabulary, single, stride):
    """Short windows: every annotator's span is proposed in each window that holds it."""
    examples = list(questions_of(str(shared_data / "squad" / f"{name}.json.gz")))
    tokenizer = load_tokenizer(shared_data / "vocab" / vocabulary)
    task = SpanSettings(seq_length=64, query_length=16, doc_stride=stride, n_best=99)
    made = featurize_spans(examples, tokenizer, task)
    columns = []
    for column in range(max(len(each.answers) for each in examples)):  # an annotator each
        one = [
            dataclasses.replace(each, answers=each.answers[column : column + 1], is_impossible=True)
            for each in examples
        ]
        columns.append(featurize_spans(one, tokenizer, task).targets)
    proposed = {
        key: np.stack([each[f"{key}_position"] for each in columns], 1) for key in ("start", "end")
    }
    proposed["score"] = np.zeros(proposed["start"].shape, np.float32)
    predictions = decode_spans(proposed, made, examples, task)
    lost = [
        row
        for row, (each, prediction) in enumerate(zip(examples, predictions, strict=True))
        if each.answers
        and not {text.strip() for _, text in each.answers}
        & {found["text"] for found in prediction["n_best"]}
    ]
    assert list(made.undecodable) == lost and lost
    if single:  # where there is one annotator
        assert set(made.lost) < set(lost)


def test_an_empty_context_has_a_window():
    features = featurize_spans([example(context=" \u200b"), example()], TOKENIZER, SpanSettings())
    assert features.sequences.lengths.tolist() == [5, 15] and features.example.tolist() == [0, 1]
    assert len(featurize_spans([], TOKENIZER, SpanSettings())) == 0


def test_a_context_of_100_000_characters():
    """50,000 pieces at 379 a window, 128 apart: 1 + ceil((50000 - 379) / 128) windows."""
    context = "".join(f"{letter} " for letter in (LETTERS[:25] * 2000))
    task = SpanSettings()
    features = featurize_spans([example(context=context, answers=[(99_998, "y")])], TOKENIZER, task)
    assert len(context) == 100_000 and len(features) == 1 + -(-(50_000 - 379) // 128)
    assert np.flatnonzero(features.targets["start_position"]).tolist() == [len(features) - 1]
    assert (features.owned_to - features.owned_from).sum() == 50_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seq_length", 7),
        ("query_length", 0),
        ("doc_stride", 0),
        ("max_answer_length", 0),
        ("n_best", 0),
        ("beam", 0),
        ("dropout", 1.0),
        ("null_threshold", float("nan")),
    ],
)
def test_impossible_values(key, value):
    with pytest.raises(ConfigError, match=rf"`task.{key}`.*Received: {value}"):
        SpanSettings(**{key: value})


@pytest.mark.slow_parameters("xquad.de")
@pytest.mark.parametrize("name", ["xquad.en", "xquad.de"])
def test_as_model_garden_s_featuriser(shared_data, name):
    """Windows, ids, targets, max-context; of ASCII contexts the places of all pieces.

    Theirs come from a longest common subsequence: where characters expand or vanish, a guess.
    """
    from official.nlp.data import squad_lib_sp
    from official.nlp.tools import tokenization

    model = str(shared_data / "vocab" / "albert_en_30k" / "spiece.model")
    examples = list(questions_of(str(shared_data / "squad" / f"{name}.json.gz")))[:24]
    theirs: list = []
    squad_lib_sp.convert_examples_to_features(
        [
            squad_lib_sp.SquadExample(e.id, e.question, e.context, e.answers[0][1], e.answers[0][0])
            for e in examples
        ],
        tokenization.FullSentencePieceTokenizer(model),
        128,
        48,
        64,
        is_training=True,
        output_fn=theirs.append,
        do_lower_case=True,
    )
    task = SpanSettings(seq_length=128, doc_stride=48)
    mine = featurize_spans(examples, load_tokenizer(model), task)
    inputs, targets = mine.batch(np.arange(len(mine)), 128)
    assert len(mine) == len(theirs)
    for row, other in enumerate(theirs):
        assert inputs["input_word_ids"][row].numpy().tolist() == other.input_ids
        assert inputs["input_type_ids"][row].numpy().tolist() == other.segment_ids
        assert targets["start_position"][row] == other.start_position
        assert targets["end_position"][row] == other.end_position
        begin, size = mine.sequences.first_lengths[row], len(other.tok_start_to_orig_index)
        owned = set(range(mine.owned_from[row], mine.owned_to[row]))
        assert owned == {p for p, best in other.token_is_max_context.items() if best}
        context = examples[mine.example[row]].context
        if context.isascii():
            own = slice(mine.piece[row], mine.piece[row] + size)
            places = zip(mine.first[own], mine.reach[own], strict=True)
            texts = [context[a : b + 1].strip() for a, b in places]
            spans = zip(other.tok_start_to_orig_index, other.tok_end_to_orig_index, strict=True)
            assert texts == [context[a : b + 1].strip() for a, b in spans]
        assert begin + size + 1 == mine.sequences.lengths[row]
