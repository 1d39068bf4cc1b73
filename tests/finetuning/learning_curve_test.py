"""Learning curves: medians and ranges of handwritten tables, the picture, and wrong folders."""

import pathlib

import pytest

from albert_tf.runtime.errors import InputError
from finetuning import learning_curve
from finetuning.learning_curve import LearningCurveOptions, curves_of

HEADER = "run,task,seed,metric,accuracy,pearson,train_examples\n"
LARGE = "a,sst-2,0,accuracy,0.9,,1000\nbag-of-words,sst-2,,accuracy,0.8,,1000\n"
SMALL = (
    "a,sst-2,0,accuracy,0.5,,100\na,sst-2,1,accuracy,0.75,,100\na,sst-2,2,accuracy,0.625,,100\n"
    "a,sts-b,0,pearson,,0.25,50\nalways the same answer,sst-2,,,0.5,,\n"
)


@pytest.fixture
def tables(tmp_path: pathlib.Path) -> pathlib.Path:
    for name, rows in (("t-1000", LARGE), ("t-100", SMALL)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.csv").write_text(HEADER + rows)
    (tmp_path / "t-empty").mkdir()
    return tmp_path


def test_medians_and_ranges(tables: pathlib.Path):
    assert curves_of(map(str, tables.glob("t-*/results.csv"))) == {
        "sst-2 (accuracy, %)": {
            "a": [(100, 62.5, 50.0, 75.0), (1000, 90.0, 90.0, 90.0)],
            "bag-of-words": [(1000, 80.0, 80.0, 80.0)],
        },
        "sts-b (pearson, %)": {"a": [(50, 25.0, 25.0, 25.0)]},
    }


def test_a_run_that_chose_by_another_metric_is_beside_its_baseline(tables: pathlib.Path):
    (tables / "t-other").mkdir()
    rows = (
        "a,multi_label,0,average_precision,0.7,0.6,900\nbag-of-words,multi_label,,macro_f1,,0.5,900"
    )
    header = HEADER.replace("accuracy,pearson", "average_precision,macro_f1")
    (tables / "t-other" / "results.csv").write_text(f"{header}{rows}\n")
    assert curves_of([f"{tables}/t-other/results.csv"]) == {
        "multi_label (macro_f1, %)": {
            "a": [(900, 60.0, 60.0, 60.0)],
            "bag-of-words": [(900, 50.0, 50.0, 50.0)],
        }
    }


def test_seeds_of_several_tables_are_one_point(tables: pathlib.Path):
    (tables / "t-more").mkdir()
    bag = LARGE.splitlines()[1]  # the baseline has no seed: both tables have the same row
    (tables / "t-more" / "results.csv").write_text(f"{HEADER}a,sst-2,1,accuracy,0.7,,1000\n{bag}\n")
    names = ("t-1000", "t-more", "t-1000")  # two globs may match the same table
    curves = curves_of(f"{tables}/{name}/results.csv" for name in names)["sst-2 (accuracy, %)"]
    assert curves["a"] == [(1000, pytest.approx(80.0), 70.0, 90.0)]
    assert curves["bag-of-words"] == [(1000, 80.0, 80.0, 80.0)]


def test_the_picture(tables: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    image = tables / "curve.png"
    options = LearningCurveOptions((f"{tables}/t-*",), str(image), dry_run=True)
    learning_curve.main(options)
    assert not image.exists()
    learning_curve.main(LearningCurveOptions((f"{tables}/t-*",), str(image)))
    assert image.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{image}\n"


def test_two_tables_with_the_same_point_are_refused(tables: pathlib.Path):
    (tables / "t-again").mkdir()
    (tables / "t-again" / "results.csv").write_text(HEADER + LARGE.splitlines()[0])
    with pytest.raises(InputError, match=r"t-1000.* and .*t-again.* both have a on sst-2 .* 1,000"):
        curves_of(f"{tables}/{name}/results.csv" for name in ("t-1000", "t-100", "t-again"))


@pytest.mark.parametrize(
    "content, words",
    [
        (HEADER.encode() + b"a,sst-2,0,accuracy,0.9\xff,,1000\n", "results.csv:2 must be UTF-8"),
        (f"{HEADER}a,sst-2,0,accuracy,0.9.1,,1000".encode(), "results.csv:2 must be a row as"),
        (f"{HEADER}a,sst-2,0,accuracy,0.9,,14.1".encode(), "results.csv:2 must be a row as"),
        (f"{HEADER}a,sst-2,0,accuray,0.9,,1000".encode(), "results.csv:2 must be a row as"),
        (f"{HEADER}a,sst-2,0,accuracy,0.9,1000".encode(), "6 columns instead of 7: add what"),
        (HEADER[1:].encode() + LARGE.encode(), "must name run and task and metric"),
    ],
)
def test_damaged_tables_are_named(tables: pathlib.Path, content: bytes, words: str):
    (tables / "t-100" / "results.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        learning_curve.main(LearningCurveOptions((f"{tables}/t-*",), f"{tables}/a.png"))


def test_wrong_paths_are_refused(tables: pathlib.Path):
    sweep = tables / "sweep"
    sweep.mkdir()
    (sweep / "results.csv").write_text("configuration,seed\nnone,0\n")
    for folder in ("t-empty", "nowhere", "sweep"):
        with pytest.raises(InputError, match=r"--tables must match folders of finetuning\.table"):
            learning_curve.main(LearningCurveOptions((f"{tables}/{folder}",), f"{tables}/a.png"))
    with pytest.raises(InputError, match=r"--output must end in \.png"):
        learning_curve.main(LearningCurveOptions((f"{tables}/t-*",), f"{tables}/a.jpg"))
