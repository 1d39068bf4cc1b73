"""Several folders as one stream: exact shares, a seek is the stream, damage is survived."""

import itertools
import os
import pathlib
import shutil
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime.errors import ConfigError, InputError
from data.build import BuildOptions, build
from data.objectives.masking import MaskingConfig
from data.objectives.next_sentence import NextSentence
from data.objectives.sentence_order import SentenceOrder
from data.pipeline.batches import training_batches
from data.pipeline.mixture import BLOCK, Mixture
from data.pipeline.record_folder import Records
from data.show_records import original_ids
from tests.conftest import TINY_CORPUS

SOP = SentenceOrder()


def numbers(dataset: tf.data.Dataset, count: int) -> list[tuple[int, int]]:
    """(epoch, index) of the next records."""
    rows = itertools.islice(dataset.as_numpy_iterator(), count)
    return [(int(epoch), int(index)) for _, index, epoch in rows]


@pytest.fixture(scope="module")
def mixture(tiny_records: str, tmp_path_factory: pytest.TempPathFactory) -> Mixture:
    other = str(tmp_path_factory.mktemp("mixed") / "other")
    shutil.copytree(tiny_records, other)
    return Mixture.open(f"{tiny_records}:3,{other}:1")


def test_numbers_are_those_of_the_stream(tiny_records: str):
    """Over the end of an epoch."""
    records = Records.open(tiny_records)
    start = records.manifest.num_records - 5
    drawn = records.numbers(7, start, 40)
    assert [number for _, *number in drawn] == [
        list(n) for n in numbers(records.stream(SOP, 7, start), 40)
    ]
    assert {epoch for _, epoch, _ in drawn} == {0, 1}


def test_every_block_has_the_exact_shares(mixture: Mixture):
    folders = [folder for folder, _, _ in mixture.numbers(5, 2 * BLOCK, BLOCK)]
    assert folders.count(mixture.parts[0].folder) == 750
    assert folders != sorted(folders)


@pytest.mark.parametrize("start", [0, 1, BLOCK - 3, 3 * BLOCK + 17])
def test_a_seek_is_the_stream(mixture: Mixture, start: int):
    from_zero = mixture.numbers(5, 0, start + 25)
    assert mixture.numbers(5, start, 25) == from_zero[start:]
    begins = dict(zip((p.folder for p in mixture.parts), (0, num_records(mixture)), strict=True))
    expected = [(epoch, begins[folder] + index) for folder, epoch, index in from_zero[start:]]
    assert numbers(mixture.stream(SOP, 5, start), 25) == expected


def num_records(mixture: Mixture) -> int:
    """Of the first folder."""
    return mixture.parts[0].manifest.num_records


def test_the_same_record_of_two_folders_has_masks_of_its_own_in_each(tiny_records: str):
    """A folder and its copy: in an epoch each record comes twice, and is masked twice."""
    doubled = Mixture.open(f"{tiny_records}:1,{tiny_records}:1")
    batches = training_batches(doubled, SOP, MaskingConfig(), 200, seed=3)
    rows = [batch for batch in batches.take(2 * num_records(doubled) // 200).as_numpy_iterator()]
    batch = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    seen, unmasked = Counter(), Counter()
    for row, ids in enumerate(original_ids(batch)):
        unmasked[tuple(sorted(ids.tolist()))] += 1
        seen[batch["input_word_ids"][row].tobytes()] += 1
    copies = sum(count > 1 for count in unmasked.values())
    assert copies > 0.9 * num_records(doubled)
    # Two of some 10 ** 5 masks of a short record may be the same.
    assert sum(count > 1 for count in seen.values()) < 0.05 * copies


def test_each_folder_gives_its_own_stream(mixture: Mixture):
    drawn = mixture.numbers(5, 0, 400)
    for part in mixture.parts:
        mine = [number for number in drawn if number[0] == part.folder]
        assert mine == part.numbers(5, 0, len(mine))


def test_shorter_sequences_are_padded(
    tiny_records: str, tiny_tokenizer: str, tmp_path: pathlib.Path
):
    short = str(tmp_path / "short")
    build(BuildOptions(TINY_CORPUS, tiny_tokenizer, short, seq_length=16, num_workers=1))
    mixed = Mixture.open(f"{short}:1,{tiny_records}:1")
    assert mixed.manifest.seq_length == 32

    def first(records: Mixture, count: int) -> dict[str, np.ndarray]:
        batches = training_batches(records, SOP, MaskingConfig(), count, seed=3)
        return next(batches.as_numpy_iterator())

    both, folders = first(mixed, 100), [folder for folder, _, _ in mixed.numbers(3, 0, 100)]
    is_short = np.array(folders) == short
    alone = first(Mixture.open(short), int(is_short.sum()))
    padding = [(0, 0), (0, 16)]
    ids = np.array(original_ids(both))[is_short]
    np.testing.assert_array_equal(ids, np.pad(original_ids(alone), padding))
    for name in ("input_mask", "input_type_ids"):
        np.testing.assert_array_equal(both[name][is_short], np.pad(alone[name], padding))
    assert both["input_mask"][~is_short].sum(1).max() == 32


def test_next_sentences_need_one_length(tiny_records: str, tiny_tokenizer: str, tmp_path):
    """Otherwise only a replaced segment makes a pair longer than its folder allows."""
    short = str(tmp_path / "short")
    build(BuildOptions(TINY_CORPUS, tiny_tokenizer, short, seq_length=16, num_workers=1))
    with pytest.raises(ConfigError, match="nsp` needs folders of one .*: lengths of 16, 32. Mix"):
        training_batches(
            Mixture.open(f"{short}:1,{tiny_records}:1"), NextSentence(), MaskingConfig(), 4, seed=0
        )


def test_a_folder_without_pairs_among_others(tiny_records: str, tiny_tokenizer: str, tmp_path):
    (tmp_path / "a.txt").write_text("A document of one sentence.")
    single = str(tmp_path / "single")
    build(BuildOptions(f"text:{tmp_path}/a.txt", tiny_tokenizer, single, seq_length=32))
    mixed = Mixture.open(f"{tiny_records}:1,{single}:1")
    batch = next(training_batches(mixed, SOP, MaskingConfig(), 64, seed=0).as_numpy_iterator())
    assert 0 < batch["pair_weight"].sum() <= 32
    with pytest.raises(ConfigError, match="needs documents of two or more sentences"):
        training_batches(Mixture.open(single), SOP, MaskingConfig(), 4, seed=0)


def test_one_folder_is_its_own_stream(tiny_records: str):
    assert Mixture.open(tiny_records).numbers(5, 3, 20) == Records.open(tiny_records).numbers(
        5, 3, 20
    )


def test_a_folder_that_exists_wins_over_a_weight(tiny_records: str, tmp_path: pathlib.Path):
    for name in ("x:2", "x", "a,b:3"):
        (tmp_path / name).symlink_to(tiny_records)
    for text in (f"{tmp_path}/x:2", f"{tmp_path}/a,b:3"):
        assert [part.folder for part in Mixture.open(text).parts] == [text]
    mixture = Mixture.open(f"{tmp_path}/x:2:1,{tmp_path}/x:3")
    assert [part.folder for part in mixture.parts] == [f"{tmp_path}/x:2", f"{tmp_path}/x"]
    assert mixture.weights == (1.0, 3.0)
    with pytest.raises(InputError, match="DIR:weight.*Received: '.*/x:2'"):
        Mixture.open(f"{tmp_path}/x:2,{tmp_path}/x:3")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a}:1,{a}", "DIR:weight"),
        ("{a}:0,{a}:1", "positive weights"),
        ("{a}:1,{a}:9999", "1/1000"),
    ],
)
def test_bad_weights_are_refused(tiny_records: str, text: str, words: str):
    with pytest.raises(InputError, match=words):
        Mixture.open(text.format(a=tiny_records))


class TestDamage:
    @pytest.fixture
    def damaged(self, tiny_records: str, tmp_path: pathlib.Path) -> str:
        """The first of the shards, cut in the middle."""
        folder = str(tmp_path / "damaged")
        shutil.copytree(tiny_records, folder)
        path, _ = Records.open(folder).shards()[0]
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 2)
        return folder

    def test_it_is_named(self, damaged: str):
        records = Records.open(damaged)
        with (
            pytest.raises(InputError, match=r"is damaged at record \d+ of"),
            records.damage_as_input_error(),
        ):
            numbers(records.stream(SOP, 0, 0), records.manifest.num_records)

    def test_it_is_passed_over_and_counted_on_request(self, damaged: str, capfd):
        records = Records.open(damaged, skip_corrupt=True)
        total = records.manifest.num_records
        raw = [
            row[0] for row in itertools.islice(records.stream(SOP, 0, 0).as_numpy_iterator(), total)
        ]
        assert all(raw) and len(raw) == total
        lost = total - len(set(raw))
        assert lost > 0 and f"is damaged: {lost} of" in capfd.readouterr().err
        assert numbers(records.stream(SOP, 0, 10), 5) == [
            tuple(n[1:]) for n in records.numbers(0, 10, 5)
        ]

    def test_nothing_left_is_an_error(self, damaged: str):
        records = Records.open(damaged, skip_corrupt=True)
        for path, _ in records.shards():
            with open(path, "r+b") as file:
                file.write(b"\xff" * 40)
                file.truncate(40)
        with pytest.raises(tf.errors.InvalidArgumentError, match="no record of a shard"):
            numbers(records.stream(SOP, 0, 0), 1)


def test_shares_are_near_the_weights_by_largest_remainder(tiny_records: str):
    thirds = Mixture.open(",".join([f"{tiny_records}:1"] * 3))
    assert sorted(np.bincount(thirds._pattern).tolist()) == [333, 333, 334]
