"""The command: a run, a converted checkpoint and passages of SQuAD; what it refuses and where."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import types
from typing import Any, cast

import pytest
import tensorflow as tf

from albert_tf.convert import __main__ as convert
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import load_tokenizer
from data.build import BuildOptions, build
from data.pipeline.batches import Mixture, Records
from data.records import sketch
from pretraining import train
from pretraining.evaluate import EvaluateOptions, config_of, main, report
from pretraining.evaluation.heldout import note_overlap
from pretraining.evaluation.intrinsic import KINDS
from pretraining.loop.config import resolve
from pretraining.loop.recipes import SMOKE


@pytest.fixture(scope="module")
def run(tiny_records: str, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of no step: its first weights."""
    run, mixture = (
        RunDir(str(tmp_path_factory.mktemp("evaluate") / "run")),
        Mixture.open(tiny_records),
    )
    config = resolve(SMOKE, ("masking.max_ngram=2",), mixture.manifest, "cpu")
    options = train.TrainOptions(tiny_records, run.path)
    run.begin(train.config_of_run(config, mixture, options), load_tokenizer(tiny_records))
    model = AlbertPretrainer(config.model).create_weights()
    tf.train.Checkpoint(model=model).save(os.path.join(run.checkpoints_path, "ckpt"))
    run.finish({})
    return run


@pytest.fixture(scope="module")
def passages(tiny_tokenizer: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Records of a SQuAD file: 12 passages, one of them twice."""
    folder = tmp_path_factory.mktemp("squad")
    texts = [f"Item {n} is first. It has a name. Its name is {n * 7}. The end." for n in range(12)]
    paragraphs = [{"context": text, "qas": []} for text in [*texts, texts[0]]]
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    (folder / "dev.json").write_text(json.dumps(squad), encoding="utf-8")
    output = str(folder / "passages")
    corpus = f"squad:{folder / 'dev.json'}"
    build(BuildOptions(corpus, tiny_tokenizer, output, seq_length=32, num_workers=1))
    return output


@pytest.fixture(scope="module")
def converted(run: RunDir, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("converted") / "model")
    convert.main(convert.ConvertOptions(run.path, folder))
    return folder


@pytest.mark.slow
def test_passages_of_squad(run: RunDir, passages: str, capsys):
    requested = []

    def strategy(*where: str | None) -> tf.distribute.Strategy:
        requested.append(where)
        return devices.strategy("cpu")

    main(EvaluateOptions(run.path, passages, device="tpu", tpu="mine"), strategy)
    assert requested == [("tpu", "mine")]
    table = capsys.readouterr().out
    with open(run.evaluation_path("passages"), encoding="utf-8") as file:
        result = json.load(file)
    counts = Records.open(passages).manifest.counts
    assert counts.documents == 12
    assert result["count/sop"] == counts.sequences - counts.sequences_without_pair > 0
    assert result["trained_with"] == "sop" and result["masking"]["rate"] == 0.15
    assert f"{result['probe/nsp']:.2%}" in table and "they are not held out" not in table
    assert [line.strip().split("  ")[0] for line in table.splitlines()[2:10]] == [
        "masked pieces",
        *KINDS,
        "SOP, pair head",
        "NSP, pair head",
        "SOP, probe",
        "NSP, probe",
    ]


@pytest.mark.slow
def test_fixed_pairs_of_a_converted_checkpoint(tiny_tokenizer: str, converted: str, tmp_path):
    """What can be asked is asked; and nothing is left in the checkpoint's folder."""
    output, figures = str(tmp_path / "fixed"), str(tmp_path / "figures.json")
    build(
        BuildOptions(
            "python_docs:email",
            tiny_tokenizer,
            output,
            seq_length=32,
            num_workers=1,
            layout="reference",
        )
    )
    before = sorted(os.walk(converted))
    main(EvaluateOptions(converted, output, output=figures))
    assert sorted(os.walk(converted)) == before
    with open(figures, encoding="utf-8") as file:
        result = json.load(file)
    counts = Records.open(output).manifest.counts
    assert result["count/sop"] == counts.sequences
    share = counts.sequences_of_label_1 / counts.sequences
    assert result["baseline/pair"] == max(share, 1 - share)
    assert not {"accuracy/nsp", "probe/sop", "probe/nsp", "masking"} & set(result)
    assert [note.split(":")[0] for note in result["notes"]] == ["no NSP pairs", "no probe"]


OF_KIND = ("accuracy", "standard_error", "count", "loss", "bits_per_character")


def test_kinds_of_masked_pieces_have_rows():
    figures = {"trained_with": "none", "loss/mlm": 2.0, "baseline/mlm": 0.04, "notes": []}
    figures |= {"accuracy/mlm": 0.5, "standard_error/mlm": 0.01, "count/mlm": 1000}
    figures |= {"hidden/accuracy": 0.4, "hidden/standard_error": 0.02, "hidden/count": 800}
    figures |= {"hidden/loss": 3.0, "hidden/bits_per_character": 1.25}
    figures |= {f"visible/{name}": figures[f"hidden/{name}"] for name in OF_KIND}
    figures |= {f"hidden 0-127/{name}": figures[f"hidden/{name}"] for name in OF_KIND}
    _, head, every, hidden, first, visible = report(figures).splitlines()
    assert first == hidden.replace("hidden       ", "hidden 0-127 ")
    assert visible == hidden.replace("hidden ", "visible")
    assert every.startswith("masked pieces ") and "50.00% ±  1.00%    4.0%        1,000" in every
    assert hidden.split() == [
        *("hidden", "40.00%", "±", "2.00%", "800", "loss", "3.000,"),
        *("1.250", "bits", "per", "character"),
    ]
    assert hidden.index("800") + 3 == every.index("1,000") + 5 == head.index("count") + 5


@pytest.mark.parametrize(("nsp", "is_noted"), [(0.4, True), (0.6, False)])
def test_equal_rows_are_explained(nsp: float, is_noted: bool):
    figures = {"trained_with": "sop", "loss/mlm": 1.0, "notes": []}
    for pair, accuracy in {"sop": 0.4, "nsp": nsp}.items():
        figures |= {f"accuracy/{pair}": accuracy, f"standard_error/{pair}": 0.1}
        figures |= {
            f"baseline/{pair}": 0.5,
            f"count/{pair}": 24,
            f"verdict/{pair}": "not above chance",
        }
    shown = report(figures)
    assert ("note: the pair head is right equally often" in shown) == is_noted
    assert "40.00%" in shown and "±" not in shown  # for 24 pairs
    assert "40.00% ± 10.00%" in report(figures | {"count/sop": 30})


def test_records_that_were_trained_on_are_no_held_out_text(run: RunDir, tiny_records: str, capsys):
    main(EvaluateOptions(run.path, tiny_records, dry_run=True))
    assert "note: about 100% of the documents" in capsys.readouterr().out


def overlap_note(trained_on: dict[str, Any], own: dict[str, Any], capsys) -> str:
    """The note on records `own`, beside records that a run was trained on."""
    values = {"corpus": "c", "split": "all", "sketch": ""}
    trained_on, own = values | trained_on, values | own
    manifest = types.SimpleNamespace(
        build_options={"split": own["split"]},
        corpus_fingerprint=own["corpus"],
        sketch=own["sketch"],
    )
    records = types.SimpleNamespace(manifest=manifest, folder="there")
    build = {"corpus": trained_on["corpus"], "build": {"split": trained_on["split"]}}
    note_overlap(build, trained_on["sketch"], cast(Records, records))
    return capsys.readouterr().out


def test_an_estimate_of_the_documents_in_common(capsys):
    """Of 300 documents, 30 are among 200 others: from different selections of the same files."""
    digests = [bytes([i // 256, i % 256]) for i in range(470)]
    part, whole = (sketch.to_text(sketch.sketch_of(d)) for d in (digests[:300], digests[270:]))
    given = {"corpus": "d", "split": "heldout", "sketch": part}
    assert overlap_note({"split": "train", "sketch": whole}, given, capsys) == (
        "note: about 10% of the documents of there are in the training records (300 compared): "
        "they are not held out.\n"
    )
    other = sketch.to_text(sketch.sketch_of(digests[300:]))
    assert overlap_note({"split": "train", "sketch": other}, given, capsys) == ""


def test_an_estimate_from_a_sample_has_an_error(capsys):
    """Half of 300 documents are among 20,000: about 246 are compared, sqrt(0.25 * 0.18 / 246)."""
    digests = [i.to_bytes(8) for i in range(20_150)]
    own, theirs = (
        sketch.to_text(sketch.sketch_of(each)) for each in (digests[:300], digests[150:])
    )
    note = overlap_note({"split": "train", "sketch": theirs}, {"sketch": own}, capsys)
    found = re.match(
        r"note: about (\d+)% ± 1% of the documents of there .* \((\d+) compared\)", note
    )
    assert found and abs(int(found[1]) - 50) < 6 and abs(int(found[2]) - 246) < 40


def test_few_documents_are_no_estimate(capsys):
    """Of 500 documents, half of which are among 200,000, about 40 can be compared."""
    digests = [i.to_bytes(4) for i in range(200_250)]
    whole = sketch.sketch_of(digests[:200_000])
    part = sketch.sketch_of(digests[-500:])
    compared = [each for each in part if each <= whole[-1]]
    shared = len(set(compared) & set(whole))
    assert 0 < shared < len(compared) < 100
    own = {"corpus": "d", "split": "heldout", "sketch": sketch.to_text(part)}
    theirs = {"split": "train", "sketch": sketch.to_text(whole)}
    assert overlap_note(theirs, own, capsys) == (
        f"note: {shared} of the {len(compared)} documents of there that can be compared are in the "
        "training records: they are not held out.\n"
    )
    apart = sketch.sketch_of(i.to_bytes(5) for i in range(500))
    assert 0 < sum(each <= whole[-1] for each in apart) < 100
    note = overlap_note(theirs, own | {"sketch": sketch.to_text(apart)}, capsys)
    assert note.startswith("note: whether the training records share documents with there is unkno")
    older = overlap_note(theirs, own | {"sketch": "0123456789abcdef" * 100}, capsys)
    assert older == note


@pytest.mark.parametrize(
    ("theirs", "own", "note"),
    [
        ("all", "heldout", "the training records share documents with there"),
        ("train", "train", "the training records share documents with there"),
        ("train", "heldout", "whether the training records share documents with there is unknown"),
    ],
)
def test_without_sketches_only_the_same_text_is_known(theirs: str, own: str, note: str, capsys):
    assert overlap_note({"split": theirs}, {"split": own}, capsys).startswith(f"note: {note}")
    unknown = overlap_note({"split": theirs}, {"split": own, "corpus": "d"}, capsys)
    assert unknown.startswith("note: whether the training records share documents with there is")


@pytest.mark.parametrize("records", [None, [None], [{"build": {}, "corpus": "c"}], {"build": 1}])
def test_a_damaged_section_of_records_is_named(
    run: RunDir, tiny_records: str, tmp_path: pathlib.Path, records: object
):
    damaged = RunDir(shutil.copytree(run.path, tmp_path / "run").as_posix())
    outputs.write_json(damaged.config_path, damaged.config() | {"records": records})
    with pytest.raises(InputError, match="config.json': `records` must describe the records"):
        config_of(damaged, Records.open(tiny_records))


def test_only_settings_that_the_run_did_not_fix_may_be_set(
    run: RunDir, tiny_records: str, converted: str
):
    records = Records.open(tiny_records)
    assert config_of(run, records, ("masking.rate=0.3",)).masking.rate == 0.3
    assert config_of(RunDir(converted), records).masking.max_ngram == 2
    requested = config_of(RunDir(converted), records, ("objective.pair=nsp",))
    assert requested.objective.pair == "nsp"
    for assignment in ("objective.pair=nsp", "seed=1"):
        with pytest.raises(InputError, match=assignment):
            config_of(run, records, (assignment,))
    masked = dataclasses.replace(
        records,
        manifest=dataclasses.replace(records.manifest, layout="reference", feature_names="google"),
    )
    with pytest.raises(InputError, match="--set masking.KEY requires .* compact layout"):
        config_of(run, masked, ("masking.rate=0.3",))


def test_folders_of_other_kinds_say_what_to_do(tiny_records: str, tmp_path: pathlib.Path):
    records = Records.open(tiny_records)
    kinds = {
        "export": ("saved_model.pb", "", "pass the run that it was exported from"),
        "foreign": ("config.json", '{"num_hidden_layers": 2}', "convert the folder first"),
        "fine-tuned": (
            "config.json",
            '{"model": {}, "task": {"kind": "single"}}',
            "fine-tuned for single",
        ),
    }
    for kind, (name, content, message) in kinds.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / name).write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            config_of(RunDir(str(tmp_path / kind)), records)


def test_an_output_in_no_folder_is_refused_first(run: RunDir, tiny_records: str):
    with pytest.raises(InputError, match="--output must be a local file in a folder"):
        main(EvaluateOptions(run.path, tiny_records, output=f"{__file__}/figures.json"))


def test_minimal_pairs_alone_and_beside_records(
    run: RunDir, tiny_records: str, tmp_path: pathlib.Path, capsys
):
    folder = tmp_path / "pairs"
    folder.mkdir()
    record = {"sentence_good": "It is a tensor.", "sentence_bad": "It are a tensor."}
    (folder / "agreement.jsonl").write_text(json.dumps(record), encoding="utf-8")
    main(EvaluateOptions(run.path, minimal_pairs=str(folder), dry_run=True))
    assert "1 minimal pairs" in capsys.readouterr().out
    main(EvaluateOptions(run.path, minimal_pairs=str(folder)))
    _, heading, row, *_ = capsys.readouterr().out.splitlines()
    assert heading.startswith("minimal pairs  ") and row.startswith("agreement  ")
    assert len(heading) == len(row)
    with open(run.evaluation_path("minimal_pairs-pairs"), encoding="utf-8") as file:
        alone = json.load(file)
    assert alone["paradigms"]["agreement"]["count"] == 1 and alone["checkpoint"] == "ckpt-1"
    both = tmp_path / "both.json"
    main(EvaluateOptions(run.path, tiny_records, str(folder), output=str(both)))
    figures = json.loads(both.read_text(encoding="utf-8"))
    assert figures["minimal_pairs"]["accuracy/pll"] == alone["accuracy/pll"]
    assert "accuracy/mlm" in figures


def test_what_was_trained_alone(run: RunDir, tiny_records: str, capsys):
    """It has its own file, so that a whole evaluation stays."""
    main(EvaluateOptions(run.path, tiny_records, trained_only=True))
    rows = [line.strip().split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    rows = rows[rows.index("accuracy") + 1 :]
    assert [row for row in rows if not row.startswith("note:")] == [
        "masked pieces",
        *KINDS,
        "SOP, pair head",
    ]
    name = f"{os.path.basename(tiny_records)}-trained_only"
    with open(run.evaluation_path(name), encoding="utf-8") as file:
        assert json.load(file)["trained_only"] is True


def test_data_of_the_same_name_have_files_of_their_own(
    run: RunDir, tiny_records: str, tmp_path, monkeypatch
):
    for folder in "xy":
        (tmp_path / folder).mkdir()
        os.symlink(tiny_records, tmp_path / folder / "heldout")
        monkeypatch.chdir(tmp_path / folder)
        main(EvaluateOptions(run.path, "heldout", trained_only=True))
    main(EvaluateOptions(run.path, str(tmp_path / "x" / "heldout"), trained_only=True))
    for name, folder in (("heldout", "x"), ("y-heldout", "y")):
        with open(run.evaluation_path(f"{name}-trained_only"), encoding="utf-8") as file:
            assert json.load(file)["data"] == str(tmp_path / folder / "heldout")


def test_options_that_belong_together(run: RunDir):
    with pytest.raises(InputError, match="--data, --minimal_pairs or both"):
        EvaluateOptions(run.path)
    with pytest.raises(InputError, match=r"--set requires --data\. Received"):
        EvaluateOptions(run.path, minimal_pairs="pairs", set=("masking.rate=0.3",))
    with pytest.raises(InputError, match="--tokenizer requires --minimal_pairs. Received"):
        EvaluateOptions(run.path, "data", tokenizer="there")


def test_minimal_pairs_on_a_checkpoint_without_a_vocabulary(
    converted: str, tiny_tokenizer: str, tmp_path: pathlib.Path, capsys
):
    folder = shutil.copytree(converted, tmp_path / "model")
    shutil.rmtree(folder / "tokenizer")
    record = {"sentence_good": "It is a tensor.", "sentence_bad": "It are a tensor."}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(record), encoding="utf-8")
    given = {"run_dir": str(folder), "minimal_pairs": str(tmp_path), "dry_run": True}
    with pytest.raises(InputNotFoundError, match="tokenizer: no spiece.model"):
        main(EvaluateOptions(**given))
    main(EvaluateOptions(**given, tokenizer=tiny_tokenizer))
    assert "1 minimal pairs" in capsys.readouterr().out
