"""The demo's commands are real commands, and its table says what the runs' files say."""

import json
import pathlib

from albert_tf.runtime import commands
from examples import demo
from tests.readme_test import options_of


def test_every_command_parses(tmp_path: pathlib.Path, capsys):
    demo.main(demo.DemoOptions(str(tmp_path / "demo"), dry_run=True))
    lines = capsys.readouterr().out.splitlines()
    command_lines = [line.split()[1:] for line in lines if line.startswith("   python -m ")]
    assert len(command_lines) == 14
    for command in command_lines:
        assert commands.parse(options_of(command[1]), command[1:], "", command[1])
    assert not (tmp_path / "demo").exists()


def test_the_table_shows_the_figures(tmp_path: pathlib.Path):
    files = {
        "records/manifest.json": {
            "counts": {
                "text_bytes": 3_200_000,
                "documents": 12,
                "sentences": 34,
                "sequences": 56,
                "pieces": 789,
            }
        },
        "pretrained/config.json": {"model": {"vocab_size": 8000, "num_layers": 4}},
        "pretrained/result.json": {
            "step": 7,
            "tokens_per_s": 1234.5,
            "loss/mlm": 5.5,
            "loss/pair": 0.6,
        },
        "pretrained/evaluations/heldout.json": {
            "loss/mlm": 5.25,
            "accuracy/mlm": 0.25,
            "baseline/mlm": 0.0625,
            "loss/pair": 0.5,
            "accuracy/pair": 0.75,
            "standard_error/pair": 0.01,
            "lengths/sop": 0.625,
            "standard_error/lengths_sop": 0.02,
        },
        "finetuned/result.json": {"accuracy": 0.5, "standard_error": 0.02, "baseline": 0.125},
        "shipped/finetuned/result.json": {"accuracy": 0.75, "standard_error": 0.01},
        "costs.json": {"seconds": {"pretraining": 120.0, "corpus": 60.0}, "memory_gb": 1.5},
    }
    for name, values in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(values), encoding="utf-8")
    table = demo.table(demo.Demo(demo.DemoOptions(str(tmp_path))))
    for figure in (
        "3.2 MB",
        "8,000 pieces",
        "1,234 tokens/s",
        "25.0%",
        "6.2%",
        "75.0% ± 1.0%",
        "62.5% ± 2.0%",
        "50.0% ± 2.0%",
        "75.0% ± 1.0% after two epochs",
        "12.5%",
        "3.0 minutes",
        "1.5 GB",
    ):
        assert figure in table, figure
