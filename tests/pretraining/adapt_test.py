"""From a text to a table: which commands with which flags, what is resumed, what is refused.

The commands of data are the real ones. Training and evaluation take no time here: their figures are
chosen. The slow suite has a real run.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any

import pytest
import tensorflow as tf

from albert_tf.models.encoder import load_encoder
from albert_tf.models.pretrainer import load_pretrainer
from albert_tf.runtime import commands, settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import load_tokenizer
from data.build import build
from data.building.options import BuildOptions
from data.records.manifest import Manifest, tokenizer_of
from data.train_tokenizer import TrainTokenizerOptions, train_tokenizer
from pretraining import adapt, evaluate, train
from pretraining.adapt import AdaptOptions
from pretraining.loop.groups import experiment
from pretraining.sweeping.calls import CommandError

GENERAL = "python_docs:typing,string"


class Commands:
    """Stands for the commands: reads the same flags, writes what they would, in no time."""

    def __init__(self) -> None:
        self.trained: list[train.TrainOptions] = []
        self.evaluated: list[evaluate.EvaluateOptions] = []
        self.fails = False

    def __call__(self, module: str, *flags: str) -> None:
        if self.fails:
            raise CommandError(f"{module} ended with status 1")
        if module == "data.build":
            build(commands.parse(BuildOptions, [module, *flags], "", ""))
        elif module == "data.train_tokenizer":
            train_tokenizer(commands.parse(TrainTokenizerOptions, [module, *flags], "", ""))
        elif module == "pretraining.train":
            given = commands.parse(train.TrainOptions, [module, *flags], "", "")
            self.trained.append(given)
            self.train(RunDir(given.run_dir), given)
        else:
            assert module == "pretraining.evaluate"
            given = commands.parse(evaluate.EvaluateOptions, [module, *flags], "", "")
            self.evaluated.append(given)
            self.evaluate(given)

    def train(self, run: RunDir, given: train.TrainOptions) -> None:
        config = settings.override(experiment(given.experiment), given.set)
        os.makedirs(run.path, exist_ok=True)
        outputs.write_json(run.config_path, settings.to_dict(config))
        for step_ms in (9000.0, 90.0, 100.0, 110.0, 500.0):  # the first one compiles
            run.add_metrics({"step": 10, "step_ms": step_ms})
        run.finish({"step": config.loop.steps})

    def evaluate(self, given: evaluate.EvaluateOptions) -> None:
        is_own = os.path.basename(given.data).startswith("own")
        bits = 1.0 if given.run_dir.endswith("run") and is_own else 2.0
        figures = {"hidden/bits_per_character": bits, "hidden/count": 1234.0}
        data = os.path.abspath(given.data)
        figures |= {"data": data, "records": Manifest.read(given.data).identity()}
        outputs.write_json(given.output, figures)


@pytest.fixture
def fake() -> Commands:
    return Commands()


@pytest.fixture
def options(tmp_path: pathlib.Path, smoke_model: str) -> AdaptOptions:
    return AdaptOptions(
        "python_docs:email,json",
        str(tmp_path / "out"),
        smoke_model,
        experiment="smoke",
        seq_length=32,
        heldout_fraction=0.2,
        device="cpu",
    )


@pytest.fixture
def smoke_model(smoke_run: str, tmp_path: pathlib.Path) -> str:
    """The smoke run under another name than that of the run that continues it."""
    os.symlink(smoke_run, tmp_path / "model")
    return str(tmp_path / "model")


def figures_in(options: AdaptOptions) -> Any:
    return json.loads((pathlib.Path(options.output) / "adapt.json").read_text())["figures"]


def test_the_vocabulary_stays_by_default(options: AdaptOptions, fake: Commands, capsys):
    assert adapt.main(options, fake) == 0
    (trained,) = fake.trained
    assert trained.init == options.init and trained.experiment == "smoke"
    assert tokenizer_of(trained.data).fingerprint == load_tokenizer(options.init).fingerprint
    assert Manifest.read(trained.data).build_options["split"] == "train"
    assert [(e.run_dir, os.path.basename(e.data)) for e in fake.evaluated] == [
        (options.init, "own-heldout-old-vocabulary"),
        (f"{options.output}/run", "own-heldout-old-vocabulary"),
    ]
    assert all(given.trained_only for given in fake.evaluated)
    assert "masking.max_ngram=3" in fake.evaluated[0].set == fake.evaluated[1].set
    own = figures_in(options)["own"]
    assert own["before"]["bits_per_character"] == 2 and own["after"]["bits_per_character"] == 1
    table = (pathlib.Path(options.output) / "README.md").read_text()
    assert table in capsys.readouterr().out and "| 2.000 | 1.000 |" in table


def test_many_unknown_pieces_have_a_note():
    figures = {"bits_per_character": 1.0, "bytes_per_piece": 4.0, "hidden_pieces": 100}
    for share in (0.009, 0.011):
        both = {when: {**figures, "unknown_pieces": share} for when in ("before", "after")}
        assert ("Unknown pieces are easy to predict" in adapt.table({"own": both})) is (
            share > 0.01
        )


def test_own_words_and_general_text(options: AdaptOptions, fake: Commands):
    options = dataclasses.replace(options, new_pieces=30, general=GENERAL, own_weight=4.0)
    adapt.main(options, fake)
    (trained,) = fake.trained
    parts = dict(part.rsplit(":", 1) for part in trained.data.split(","))
    assert list(parts.values()) == ["4.0", "1"]
    new = load_tokenizer(f"{options.output}/tokenizer")
    assert new.training["added"]["pieces"] == 30 and new.training["split"] == "train"
    for folder in parts:
        assert tokenizer_of(folder).fingerprint == new.fingerprint
    assert [os.path.basename(e.data) for e in fake.evaluated] == [
        "own-heldout-old-vocabulary",
        "general-heldout-old-vocabulary",
        "own-heldout-new-vocabulary",
        "general-heldout-new-vocabulary",
    ]
    found = figures_in(options)
    assert found["general"]["after"]["bits_per_character"] == 2
    bytes_per_piece = [found["own"][when]["bytes_per_piece"] for when in ("before", "after")]
    assert bytes_per_piece[0] < bytes_per_piece[1]


def test_a_rerun_does_only_what_is_missing(
    options: AdaptOptions, fake: Commands, tmp_path: pathlib.Path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    options = dataclasses.replace(options, output="out")
    fake.fails = True
    assert adapt.main(options, fake) == commands.USAGE_ERROR
    assert "data.build ended with status 1" in capsys.readouterr().err
    fake.fails = False
    adapt.main(options, fake)
    adapt.main(options, fake)
    assert len(fake.evaluated) == 2 and len(fake.trained) == 2  # a finished run is left alone
    (pathlib.Path(options.output) / "evaluations").joinpath(
        "own-heldout-old-vocabulary-after.json"
    ).unlink()
    adapt.main(options, fake)
    assert [e.run_dir for e in fake.evaluated[2:]] == [f"{options.output}/run"]


def test_a_rerun_with_other_options_is_refused_at_once(options: AdaptOptions, fake: Commands):
    adapt.main(options, fake)
    folders = sorted(os.listdir(options.output))
    changed = dataclasses.replace(options, general=GENERAL, steps=7)
    with pytest.raises(
        InputError, match=r"--general=.*typing,string \(was None\); --steps=7 \(was"
    ):
        adapt.main(changed, fake)
    assert sorted(os.listdir(options.output)) == folders and len(fake.trained) == 1
    adapt.main(dataclasses.replace(options, device="auto"), fake)


def test_a_retrained_init_is_refused_at_once(
    options: AdaptOptions, fake: Commands, tmp_path: pathlib.Path
):
    model = tmp_path / "base"
    shutil.copytree(options.init, model)
    options = dataclasses.replace(options, init=str(model))
    adapt.main(options, fake)
    pretrainer = load_pretrainer(str(model))
    pretrainer.mlm_head.bias.assign_add([1.0] * pretrainer.encoder.config.vocab_size)
    tf.train.Checkpoint(model=pretrainer).save(str(model / "checkpoints" / "ckpt"))
    with pytest.raises(InputError, match="--init=.*base, whose weights have changed. Pass"):
        adapt.main(options, fake)
    assert len(fake.evaluated) == 2 and len(fake.trained) == 1


def test_a_mistake_found_by_the_first_command_can_be_corrected(
    options: AdaptOptions, fake: Commands
):
    fake.fails = True
    assert adapt.main(options, fake) == commands.USAGE_ERROR
    fake.fails = False
    adapt.main(dataclasses.replace(options, heldout_fraction=0.3), fake)
    assert Manifest.read(fake.trained[0].data).build_options["heldout_fraction"] == 0.3


def test_minutes_become_steps_once(options: AdaptOptions, fake: Commands):
    """The median of the four loops after the first is 105 ms: 60,000 x 0.07 / 105 steps."""
    options = dataclasses.replace(options, minutes=0.07)
    adapt.main(options, fake)
    timed, trained = fake.trained
    assert "loop.steps=50" in timed.set and ".timing-" in timed.run_dir
    assert not os.path.exists(timed.run_dir)
    assert trained.set == (
        "loop.steps=40",
        "optimizer.warmup_steps=10",
        "optimizer.schedule_steps=0",
        "optimizer.decay_steps=0",
    )
    adapt.main(options, fake)
    assert fake.trained[2].set == trained.set and len(fake.trained) == 3


def test_a_text_of_another_key(options: AdaptOptions, fake: Commands, tmp_path: pathlib.Path):
    rows = [json.dumps({"body": f"It rained on day {day}. It rained again."}) for day in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    corpus = f"jsonl:{tmp_path}/a.jsonl"
    adapt.main(dataclasses.replace(options, corpus=corpus, text_column="body"), fake)
    (trained,) = fake.trained
    assert Manifest.read(trained.data).counts.sequences > 0


def test_mistakes(options: AdaptOptions, fake: Commands, tmp_path: pathlib.Path):
    (tmp_path / "a.txt").write_text("A text.")
    for change, message in (
        (
            {"steps": 5, "minutes": 5.0},
            "--minutes and --steps exclude each other. Received: --minutes=5.0, --steps=5",
        ),
        ({"own_weight": 2.0}, "--own_weight requires --general"),
        ({"general": "text:nowhere"}, "no file matches 'nowhere'"),
        ({"init": "nowhere"}, "no file or folder 'nowhere'"),
        ({"set": ("loop.stpes=1",)}, "unknown key `loop.stpes`"),
        ({"set": ("evaluation.every=10",)}, "`evaluation.every` must be 0, since both"),
        ({"corpus": f"text:{tmp_path}/**/*.txt"}, "--output must not be in the folder of text:"),
        ({"general_text_column": "body"}, "--general_text_column requires --general"),
        (
            {"document_boundary": "file", "corpus": f"text:{tmp_path}/a.txt"},
            "Received: 1 document, all held out. Set another --document_boundary",
        ),
        ({"set": ("model.hidden_size=48",)}, "contains another model than the run's.*hidden_size"),
        (
            {"general": options.corpus, "own_weight": 2000.0},
            r"--own_weight must be in \[0.002, 500\]. Received: 2000",
        ),
        (
            {"general": options.corpus, "output": f"{tmp_path}/a,b"},
            "--output must not contain a comma beside --general",
        ),
    ):
        with pytest.raises(InputError, match=message):
            adapt.main(dataclasses.replace(options, **change), fake)
    foreign = dataclasses.replace(options, output=str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    with pytest.raises(InputError, match="--output must name a new or empty folder"):
        adapt.main(foreign, fake)
    assert not os.path.exists(options.output) and not fake.trained
    assert adapt.main(dataclasses.replace(options, dry_run=True), fake) == 0
    assert not os.path.exists(options.output)


@pytest.mark.slow
def test_a_real_one(options: AdaptOptions):
    """The smoke run learns more of its own text, with new words."""
    options = dataclasses.replace(options, new_pieces=50, steps=60, general=GENERAL)
    assert adapt.main(options) == 0
    own = figures_in(options)["own"]
    assert own["after"]["bits_per_character"] < own["before"]["bits_per_character"]
    new = load_tokenizer(f"{options.output}/tokenizer").vocab_size
    assert load_encoder(f"{options.output}/run").config.vocab_size == new
