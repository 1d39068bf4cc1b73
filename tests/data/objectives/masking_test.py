"""Tests that masking in the graph is the plain algorithm, and has the paper's statistics.

Tolerances are five standard deviations of the statistic, so that a sound program fails by chance
less than once in a million; the draws are fixed by the seed in any case.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.runtime import keyed_random
from albert_tf.runtime.errors import ConfigError
from data.objectives import masking
from data.objectives.masking import MaskingConfig, Vocabulary, mask_batch
from data.records.schema import MAX_SEQ_LENGTH

VOCABULARY = Vocabulary(50, 4, (0, 1, 2, 3, 4))
# Traced once for each shape and configuration; graph operations only, which need no conversion.
MASK = tf.function(mask_batch, autograph=False)
STREAMS = (keyed_random.NGRAM, keyed_random.TILE, keyed_random.REPLACE, keyed_random.PIECE)


class Sequences:
    """A batch [CLS] X [SEP] Y [SEP] <pad>..., made of words that are lists of pieces."""

    def __init__(self, rows: list[list[list[int]]], length: int, seed: int = 0) -> None:
        """rows: for each sequence its segments, each as the lengths of its words."""
        rng = np.random.default_rng(seed)
        shape = (len(rows), length)
        self.ids = np.zeros(shape, np.int32)
        self.word_starts = rng.random(shape) < 0.5  # means nothing outside the segments
        self.maskable, self.segment_starts = np.zeros(shape, bool), np.zeros(shape, bool)
        for row, segments in enumerate(rows):
            at = 1
            self.ids[row, 0] = 2
            for words in segments:
                size = sum(words)
                span = slice(at, at + size)
                self.ids[row, span] = rng.integers(5, VOCABULARY.size, size)
                self.maskable[row, span] = True
                self.word_starts[row, span] = False
                self.word_starts[row, at + np.cumsum([0, *words[:-1]])] = True
                # The first piece of a segment is a word's first even if it does not look so.
                self.word_starts[row, at] = rng.random() < 0.5
                self.segment_starts[row, at] = True
                self.ids[row, at + size] = 3
                at += size + 1
        self.rows, self.length = rows, length

    def keys(self, epoch: int = 0) -> dict[int, np.ndarray]:
        numbers = np.arange(len(self.rows))
        return {
            s: keyed_random.bits(keyed_random.stream_key(0, s, epoch), numbers) for s in STREAMS
        }

    def mask(
        self, config: MaskingConfig, epoch: int = 0, rate: list[float] | None = None
    ) -> dict[str, np.ndarray]:
        keys = {s: tf.constant(key[:, None]) for s, key in self.keys(epoch).items()}
        arrays = (self.ids, self.word_starts, self.maskable, self.segment_starts)
        rates = None if rate is None else tf.constant(rate)
        masked = MASK(*map(tf.constant, arrays), keys, config, VOCABULARY, rates)
        return {name: value.numpy() for name, value in masked.items()}


def words_of(batch: Sequences, row: int) -> list[tuple[int, list[int]]]:
    """(segment, positions) of each word."""
    words: list[tuple[int, list[int]]] = []
    at = 1
    for segment, lengths in enumerate(batch.rows[row], start=1):
        for size in lengths:
            words.append((segment, list(range(at, at + size))))
            at += size
        at += 1  # [SEP]
    return words


def budget_of(batch: Sequences, row: int, config: MaskingConfig) -> int:
    """round(rate * pieces) in float32, halves to even; special pieces count."""
    pieces = sum(map(sum, batch.rows[row])) + len(batch.rows[row]) + 1
    wanted = int(np.round(np.float32(config.rate) * np.float32(pieces)))
    return min(config.slots(batch.length), max(1, wanted))


def reference(batch: Sequences, row: int, config: MaskingConfig) -> dict[str, list]:
    """The module's definition, word by word."""
    keys = {stream: int(key[row]) for stream, key in batch.keys().items()}
    # Words have numbers from 1 on, with a gap in front of each segment that no n-gram can span.
    words = {
        number + config.max_ngram * segment: positions
        for number, (segment, positions) in enumerate(words_of(batch, row), start=1)
    }
    table = masking.tilings(config.max_ngram, masking._width(batch.length, config.max_ngram))
    (draw,) = keyed_random.bits(keys[keyed_random.NGRAM], np.zeros(1)).tolist()
    tiles = table[(draw >> 32) * len(table) >> 32]
    # The n-grams in random order; each word that still fits.
    priorities = keyed_random.bits32(keys[keyed_random.TILE], tiles).tolist()
    shift = 32 - (31 - (table.shape[1] - 1).bit_length())  # the bits that are left for the number
    left, chosen = budget_of(batch, row, config), []
    for number in sorted(words, key=lambda number: (priorities[number] >> shift, number)):
        if len(words[number]) <= left:
            left -= len(words[number])
            chosen += words[number]
    chosen.sort()
    # 80 % [MASK], 10 % a random ordinary piece, 10 % unchanged.
    ids = batch.ids[row].tolist()
    targets = [ids[position] for position in chosen]
    ordinary = [i for i in range(VOCABULARY.size) if i not in VOCABULARY.special_ids]
    count = np.arange(len(chosen))
    actions = keyed_random.bits32(keys[keyed_random.REPLACE], count).tolist()
    pieces = keyed_random.bits(keys[keyed_random.PIECE], count).tolist()
    for slot, position in enumerate(chosen):
        unit = actions[slot] / 2**32
        if unit < 0.8:
            ids[position] = VOCABULARY.mask_id
        elif unit < 0.9:
            ids[position] = ordinary[(pieces[slot] >> 32) * len(ordinary) >> 32]
    unused = [0] * (config.slots(batch.length) - len(chosen))
    return {
        "input_word_ids": ids,
        "masked_lm_positions": chosen + unused,
        "masked_lm_ids": targets + unused,
        "masked_lm_weights": [1.0] * len(chosen) + [0.0] * len(unused),
    }


def random_rows(num_rows: int, length: int, longest: int, seed: int) -> list[list[list[int]]]:
    """Sequences of one or two segments, full or not, with words of 1 to `longest` pieces."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num_rows):
        pieces = length - 3 if rng.random() < 0.5 else int(rng.integers(2, length - 2))
        sizes = [pieces] if rng.random() < 0.2 else [cut := int(rng.integers(1, pieces)), 0]
        if len(sizes) == 2:
            sizes[1] = pieces - cut
        segments = []
        for size in sizes:
            words: list[int] = []
            while (left := size - sum(words)) > 0:
                words.append(min(left, int(rng.integers(1, longest + 1))))
            segments.append(words)
        rows.append(segments)
    return rows


EDGE_CASES = {
    "one word of one piece": [[[1]]],
    "one word longer than the budget": [[[29]]],
    "a word of the budget's length": [[[5, 24]]],
    "only long words": [[[9, 9], [9]]],
    "one word a segment": [[[1], [1]]],
    "many short words": [[[1] * 14, [1] * 15]],
    "short in front of long": [[[1, 20], [7, 1]]],
    "no word that fits": [[[3] * 4, [3] * 5]],
    "most rows end in a word that does not fit": [[[2] * 7, [2] * 7]],
}


@pytest.mark.parametrize("max_ngram", [1, 3, 5])
def test_edge_cases_are_the_references(max_ngram):
    batch = Sequences([row for rows in EDGE_CASES.values() for row in rows], 32)
    assert_reference(batch, MaskingConfig(max_ngram=max_ngram))


@pytest.mark.parametrize("longest", [1, 2, 6])
@pytest.mark.parametrize(
    "config",
    [
        MaskingConfig(),
        MaskingConfig(max_ngram=1),
        MaskingConfig(max_ngram=5, rate=0.4),
        MaskingConfig(max_predictions=3),
        MaskingConfig(rate=0.02),
    ],
    ids=["default", "words", "many", "few slots", "low rate"],
)
def test_random_batches_are_the_references(longest, config):
    assert_reference(Sequences(random_rows(40, 48, longest, seed=longest), 48, longest), config)


@pytest.mark.parametrize("length", [500, 512, MAX_SEQ_LENGTH])
def test_long_batches_are_the_references(length):
    assert_reference(Sequences(random_rows(8, length, 4, seed=0), length), MaskingConfig())


def test_a_batch_of_padding_has_no_predictions():
    batch = Sequences([[], []], 32)
    masked = batch.mask(MaskingConfig())
    assert not masked["masked_lm_weights"].any()
    np.testing.assert_array_equal(masked["input_word_ids"], batch.ids)


def assert_reference(batch: Sequences, config: MaskingConfig) -> None:
    masked = batch.mask(config)
    for row in range(len(batch.rows)):
        for name, expected in reference(batch, row, config).items():
            assert masked[name][row].tolist() == expected, (name, row)


def test_the_budget_is_used_exactly_unless_no_word_fits():
    batch = Sequences(random_rows(300, 64, 5, seed=3), 64)
    assert exact_rows(batch, batch.mask(MaskingConfig()), MaskingConfig()) > 250


SEGMENT = st.lists(st.integers(1, 9), min_size=1, max_size=14).map(
    lambda words: words[: max(1, int(np.searchsorted(np.cumsum(words), 14, "right")))]
)


ROWS = st.lists(st.lists(SEGMENT, max_size=2), min_size=4, max_size=4)
CONFIGS = st.sampled_from([MaskingConfig(), MaskingConfig(0.4, 5), MaskingConfig(0.4, 1, 3)])


@given(ROWS, st.integers(0, 2**31), CONFIGS)
@settings(deadline=None, max_examples=60)
def test_masks_of_any_rows_are_whole_words_within_the_budget(rows, epoch, config):
    """Of any words and record keys: specials and padding stay, and targets are what was there."""
    batch = Sequences(rows, 32)
    masked = batch.mask(config, epoch)
    exact_rows(batch, masked, config)
    row, slot = np.nonzero(masked["masked_lm_weights"])
    position = masked["masked_lm_positions"][row, slot]
    assert batch.maskable[row, position].all()
    assert (masked["masked_lm_ids"][row, slot] == batch.ids[row, position]).all()
    changed = masked["input_word_ids"] != batch.ids
    changed[row, position] = False
    assert not changed.any()


def exact_rows(batch: Sequences, masked: dict[str, np.ndarray], config: MaskingConfig) -> int:
    """In how many rows the budget is used exactly; checks that in others no word is left for it."""
    num_exact = 0
    for row in range(len(batch.rows)):
        used = int(masked["masked_lm_weights"][row].sum())
        chosen = set(masked["masked_lm_positions"][row, :used].tolist())
        words = [positions for _, positions in words_of(batch, row)]
        left = [positions for positions in words if chosen.isdisjoint(positions)]
        assert chosen == set(sum((w for w in words if w not in left), []))  # whole words only
        assert len(chosen) == used
        missing = budget_of(batch, row, config) - used
        assert missing == 0 or missing > 0 and all(len(positions) > missing for positions in left)
        num_exact += missing == 0
    return num_exact


def test_budgets_by_hand():
    """[CLS], [SEP] and the pieces: 0.15 * 10 = 1.5 and 0.15 * 30 = 4.5 are halves, go to even."""
    budgets = {1: 1, 4: 1, 8: 2, 15: 3, 28: 4, 62: 10}
    masked = Sequences([[[1] * pieces] for pieces in budgets], 64).mask(MaskingConfig())
    assert masked["masked_lm_weights"].sum(axis=1).tolist() == list(budgets.values())


def test_each_row_may_have_its_own_rate():
    """A row is masked as it is at a rate for all rows."""
    rows, config = random_rows(6, 64, 3, seed=1), MaskingConfig(max_predictions=32)
    rates = [0.1, 0.15, 0.2, 0.25, 0.3, 0.4]
    masked = Sequences(rows, 64).mask(config, rate=rates)
    for row, rate in enumerate(rates):
        alone = Sequences(rows, 64).mask(dataclasses.replace(config, rate=rate))
        for name, values in masked.items():
            np.testing.assert_array_equal(values[row], alone[name][row])


def test_the_rate_is_linear_between_the_first_and_the_last():
    falling = MaskingConfig(rate=0.15, first_rate=0.3)
    rates = [float(falling.rate_at(tf.constant(step), 100)) for step in (0, 50, 100, 120)]
    assert rates == pytest.approx([0.3, 0.225, 0.15, 0.15])
    assert MaskingConfig(rate=0.2).rate_at(tf.constant(5), 0) == np.float32(0.2)


def test_slots():
    assert MaskingConfig().slots(512) == 77  # round(76.8)
    assert MaskingConfig().slots(2) == 1
    assert MaskingConfig(max_predictions=20).slots(128) == 20
    with pytest.raises(ConfigError, match="at most the sequence length, 16. Received: 20"):
        MaskingConfig(max_predictions=20).slots(16)
    with pytest.raises(ConfigError, match="at most 8192 pieces. Received: 8193"):
        MaskingConfig().slots(8193)
    falling = MaskingConfig(first_rate=0.3)
    assert falling.slots(128) == 38  # round(38.4), of the larger rate
    with pytest.raises(ConfigError, match="larger of .*first_rate`, 38 of 128, or 0.*: 20"):
        dataclasses.replace(falling, max_predictions=20).slots(128)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 0.0}, "`masking.rate` must be in .0, 1.. Received: 0.0"),
        ({"rate": 1.0}, "`masking.rate`"),
        ({"first_rate": 1.0}, "`masking.first_rate` must be in .0, 1.. Received: 1.0"),
        ({"max_ngram": 0}, "`masking.max_ngram` must be positive. Received: 0"),
        (
            {"max_predictions": -1},
            "`masking.max_predictions` must be at least 0, where 0 means round",
        ),
    ],
)
def test_impossible_values_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        MaskingConfig(**change)


@pytest.fixture(scope="module")
def many():
    """7,000 sequences of 123 words of one piece: 133,000 predictions."""
    batch = Sequences([[[1] * 60, [1] * 63]] * 7000, 128)
    masked = batch.mask(MaskingConfig())
    return batch, masked


def is_near(share: float, expected: float, count: int) -> bool:
    return abs(share - expected) < 5 * (expected * (1 - expected) / count) ** 0.5


def test_eighty_ten_ten(many):
    batch, masked = many
    assert masked["masked_lm_weights"].min() == 1  # 0.15 * 126 = 18.9: all 19 slots
    count = masked["masked_lm_ids"].size
    assert count == 133_000
    new = np.take_along_axis(masked["input_word_ids"], masked["masked_lm_positions"], axis=1)
    is_mask, is_same = new == VOCABULARY.mask_id, new == masked["masked_lm_ids"]
    random = new[~is_mask & ~is_same]
    same_by_chance = 0.1 / 45  # a random piece is the old one in 1 of 45 ordinary pieces
    assert is_near(is_mask.mean(), 0.8, count)
    assert is_near(is_same.mean(), 0.1 + same_by_chance, count)
    assert is_near(random.size / count, 0.1 - same_by_chance, count)


def test_random_replacements_are_uniform_and_never_special(many):
    _, masked = many
    new = np.take_along_axis(masked["input_word_ids"], masked["masked_lm_positions"], axis=1)
    replaced = new[(new != VOCABULARY.mask_id) & (new != masked["masked_lm_ids"])]
    assert not np.isin(replaced, VOCABULARY.special_ids).any()
    counts = np.bincount(replaced, minlength=VOCABULARY.size)[5:]
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_square - 44) < 5 * (2 * 44) ** 0.5


def test_special_pieces_anywhere_in_the_vocabulary_are_left_out():
    """Converted vocabularies have their special pieces elsewhere."""
    vocabulary = Vocabulary(12, 7, (0, 3, 7, 10, 11))
    targets = tf.fill([2000, 5], 1)
    keys = {s: tf.constant(k[:, None]) for s, k in Sequences([[[1]]] * 2000, 8).keys().items()}
    new = masking._replacements(targets, keys, vocabulary).numpy()
    assert set(new[new != 7].tolist()) == {1, 2, 4, 5, 6, 8, 9}


def test_nothing_else_changes(many):
    batch, masked = many
    changed = masked["input_word_ids"] != batch.ids
    assert not changed[~batch.maskable].any()
    np.put_along_axis(changed, masked["masked_lm_positions"], False, axis=1)
    assert not changed.any()
    original = np.take_along_axis(batch.ids, masked["masked_lm_positions"], axis=1)
    np.testing.assert_array_equal(original, masked["masked_lm_ids"])


def test_every_position_is_as_likely_as_any_other(many):
    batch, masked = many
    counts = np.bincount(masked["masked_lm_positions"].ravel(), minlength=128)
    assert not counts[~batch.maskable[0]].any()
    assert all(is_near(c / 7000, 19 / 123, 7000) for c in counts[batch.maskable[0]])


def test_long_words_are_left_out_a_little_more_often():
    """Where the last of the budget is too small for them. All in all the rate is kept."""
    batch = Sequences([[[1, 2, 3] * 20]] * 2000, 124)
    masked = batch.mask(MaskingConfig())
    chosen = np.zeros((2000, 124))
    np.put_along_axis(chosen, masked["masked_lm_positions"], masked["masked_lm_weights"], axis=1)
    starts = 1 + np.cumsum([0, *([1, 2, 3] * 20)[:-1]])
    shares = chosen[:, starts].reshape(2000, 20, 3).mean(axis=(0, 1))  # of words of 1, 2, 3 pieces
    assert shares == pytest.approx([0.15] * 3, rel=0.25)
    assert shares[0] > shares[1] > shares[2]
    assert shares @ [1, 2, 3] * 20 == pytest.approx(18, rel=1e-3)  # round(0.15 * 122)


def runs_of(tiles: np.ndarray) -> np.ndarray:
    """Lengths of the tiles of all rows, without each row's first and last, which may be cut."""
    is_last = np.pad(np.diff(tiles) > 0, ((0, 0), (0, 1)))
    rows = [np.diff(np.flatnonzero(row)) for row in is_last]
    return np.concatenate(rows)


def test_n_grams_have_p_of_n_like_one_over_n():
    lengths = runs_of(masking.tilings(3, 544))
    assert lengths.size > 270_000
    for n, expected in ((1, 6 / 11), (2, 3 / 11), (3, 2 / 11)):
        assert is_near((lengths == n).mean(), expected, lengths.size)
    after_each = np.bincount(3 * (lengths[:-1] - 1) + lengths[1:] - 1, minlength=9) / lengths.size
    independent = np.outer([6, 3, 2], [6, 3, 2]).ravel() / 121
    assert all(is_near(s, e, lengths.size) for s, e in zip(after_each, independent, strict=True))
    assert set(runs_of(masking.tilings(1, 64))) == {1}


def test_where_n_grams_begin_is_alike_for_all_words():
    """A word begins an n-gram with chance 1 / mean length = 11 / 18, from the fourth on."""
    tiles = masking.tilings(3, 64)
    begins = np.diff(tiles)[:, 3:].mean(axis=0)
    assert all(is_near(share, 11 / 18, len(tiles)) for share in begins[4:])


@pytest.mark.parametrize(("max_ngram", "expected"), [(3, 0.1818), (1, 0.0)])
def test_masked_words_stand_together_as_n_grams(max_ngram, expected):
    """Three of 500 words: all in a row where the first n-gram taken is a trigram.

    Single words meet by chance in about 3 of 1,000 cases, an n-gram and a word in 1 of 100.
    """
    batch = Sequences([[[1] * 500]] * 3000, 504)
    masked = batch.mask(MaskingConfig(rate=3 / 502, max_ngram=max_ngram))
    positions = masked["masked_lm_positions"]
    in_a_row = (positions[:, 2] - positions[:, 0] == 2).mean()
    assert expected - 0.035 < in_a_row < expected + 0.035
    if max_ngram == 1:
        assert in_a_row < 0.003


def test_draws_depend_on_the_record_and_the_epoch_alone():
    """The same record in another place of another batch, and in another epoch."""
    rows = random_rows(6, 64, 3, seed=5)
    batch = Sequences(rows, 64)
    first, again = batch.mask(MaskingConfig()), batch.mask(MaskingConfig())
    other = batch.mask(MaskingConfig(), epoch=1)
    shuffled = Sequences(rows, 64)
    order = np.array([4, 2, 0, 1, 5, 3])
    for name in ("ids", "word_starts", "maskable", "segment_starts"):
        setattr(shuffled, name, getattr(batch, name)[order])
    keys = {s: key[order] for s, key in batch.keys().items()}
    shuffled.keys = lambda epoch=0: keys
    moved = shuffled.mask(MaskingConfig())
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)
        np.testing.assert_array_equal(moved[name], value[order])
    assert (other["masked_lm_positions"] != first["masked_lm_positions"]).any(axis=1).sum() >= 5


def test_single_pieces_are_masked_on_request():
    """Words of two pieces, 15 % of 203 pieces: whole words, or pieces, some of them halves."""
    batch = Sequences([[[2] * 50, [2] * 50]] * 50, 203)
    for whole in (True, False):
        found = batch.mask(MaskingConfig(max_ngram=1, whole_words=whole))
        chosen = np.zeros((50, 204), bool)
        np.put_along_axis(chosen, found["masked_lm_positions"], True, axis=1)
        halves = [
            chosen[row, positions].sum() == 1
            for row in range(50)
            for _, positions in words_of(batch, row)
        ]
        assert found["masked_lm_weights"].sum() == 50 * 30
        assert (sum(halves) == 0) == whole
