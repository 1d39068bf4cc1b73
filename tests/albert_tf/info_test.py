"""Tests of the printed sizes against the paper's, and that the documentation shows the same."""

import collections
import json
import pathlib

import pytest

from albert_tf import info
from albert_tf.info import InfoOptions, PublishedSize
from albert_tf.models.config import PRESETS, AlbertConfig
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]


def show(capsys: pytest.CaptureFixture, *flags: str) -> str:
    info.main(commands.parse(InfoOptions, ["albert_tf.info", *flags], "", ""))
    return capsys.readouterr().out


def cells(table: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows[2:]}


@pytest.mark.parametrize("row", info.published_sizes(), ids=lambda row: f"{row.table}-{row.model}")
def test_published_sizes_but_for_xxlarge(row: PublishedSize):
    # The paper rounds to millions from counts that it does not give.
    tolerance = max(1.6, 0.011 * row.published_m)
    if row.model == "albert-xxlarge-v2":
        assert row.published_m == 235
        assert row.computed_m == pytest.approx(222.595584)  # that of the released checkpoint
    else:
        assert row.computed_m == pytest.approx(row.published_m, abs=tolerance)


def test_every_row_of_the_papers_tables_is_there():
    rows = info.published_sizes()
    counts = collections.Counter(row.table.partition(":")[0] for row in rows)
    assert counts == {"Table 1": 7, "Table 3": 8, "Table 4": 8, "Table 12": 4}
    assert len({row.config for row in rows if row.table[:7] in ("Table 3", "Table 4")}) == 12


def test_a_preset_beside_its_bert(capsys):
    table = cells(show(capsys, "--preset=albert-base-v2"))
    # 12 layers of 4 (768 x 768 + 768) + 2 x 768.
    assert table["attention"] == ["2,363,904", "28,366,848", "12.00"]
    assert table["projection"] == ["99,072", "0", ""]
    assert table["total without heads"] == ["11,683,584", "109,081,344", "9.34"]
    assert table["pair_head"] == ["1,538", "1,538", "1.00"]
    # E = 128: 768 x 128 + 128, 2 x 128 and the biases of 30,000 pieces; E = 768 likewise.
    assert table["total with pretraining heads"] == ["11,813,810", "109,705,010", "9.29"]


def test_the_included_model_beside_its_bert(capsys):
    table = cells(show(capsys, "--preset=albert-mini-en"))
    assert table["total without heads"][0] == "7,588,480"
    # Pre-norm has one LayerNorm more, 2 x 384, which BERT lacks.
    assert ["768", "0", ""] in table.values()


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.startswith("bert-")])
def test_a_bert_is_its_own_bert(preset):
    config = AlbertConfig.from_preset(preset)
    assert info.bert_of_same_shape(config) == config
    block = {"norm": "pre", "positions": "rotary", "ffn": "gated"}
    ours = config.replace(sharing="all", num_groups=2, embedding_size=8, **block)
    assert info.bert_of_same_shape(ours) == config


def test_a_config_file_with_a_key_changed(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model": {"num_layers": 4, "hidden_size": 64, "num_heads": 4}}))
    table = cells(show(capsys, f"--config={path}", "--set=sharing=attention"))
    assert cells(show(capsys, f"--config={tmp_path}", "--set=sharing=attention")) == table
    names = [f"--{flag}=albert-mini-en" for flag in ("config", "preset")]
    assert cells(show(capsys, names[0])) == cells(show(capsys, names[1]))
    # One attention of 4 (64 x 64 + 64) + 2 x 64 against four.
    assert table["attention"] == ["16,768", "67,072", "4.00"]
    assert table["feed_forward"][2] == "1.00"


def test_dry_run_prints_every_key(capsys):
    printed = json.loads(show(capsys, "--preset=albert-large-zh", "--dry_run"))
    assert AlbertConfig.from_dict(printed) == AlbertConfig.from_preset("albert-large-zh")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ["--preset", "--config", "--paper"]),
        (["--preset=albert-base-v2", "--paper"], ["--preset=albert-base-v2", "--paper=True"]),
        (["--paper", "--set=num_layers=3"], ["--set", "num_layers=3"]),
        (["--preset=albert-base-v9"], ["unknown preset `albert-base-v9`", "mean albert-base-v"]),
        (["--preset=albert-base"], ["mean albert-base-v1 or albert-base-v2 or albert-base-zh?"]),
        (["--preset=?"], ["unknown preset `?`. Valid presets: albert-base-v1"]),
        (["--preset=albert-base-v2", "--set=layers=3"], ["`layers`", "num_layers"]),
    ],
)
def test_mistakes_are_told(capsys, flags, words):
    with pytest.raises(InputError) as error:
        show(capsys, *flags)
    assert all(word in str(error.value) for word in words)


def test_the_documentation_shows_what_is_printed():
    text = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert info.paper_tables() in text
    assert info.size_table("albert-base-v2", AlbertConfig.from_preset("albert-base-v2")) in text
