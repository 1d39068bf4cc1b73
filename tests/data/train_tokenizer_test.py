"""Tests that a trained vocabulary has ALBERT's layout, is reproducible, and is all or nothing."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import pytest

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError
from albert_tf.text.tokenizer import Normalization, load_tokenizer
from data.train_tokenizer import TrainTokenizerOptions, train_tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    """Some of Python's own help as plain text, with capitals, accents and quotes."""
    topics = pytest.importorskip("pydoc_data.topics").topics
    text = "\n\n".join(list(topics.values())[:12]) + "\n\nCafé ``Été'' for €5 or £6 (naïve).\n" * 9
    path = tmp_path_factory.mktemp("corpus") / "help.txt"
    path.write_text(text, encoding="utf-8")
    return f"text:{path}"


@pytest.fixture
def options(corpus, tmp_path) -> TrainTokenizerOptions:
    return TrainTokenizerOptions(corpus=corpus, output=str(tmp_path / "out"), vocab_size=300)


def model_bytes(options: TrainTokenizerOptions) -> bytes:
    return (pathlib.Path(options.output) / "spiece.model").read_bytes()


def test_layout_of_the_vocabulary(options, capsys):
    assert train_tokenizer(options) == 0
    tokenizer = load_tokenizer(options.output)
    wanted = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']
    assert [tokenizer.id_to_piece(i) for i in range(13)] == wanted
    assert tokenizer.vocab_size == 300
    text = "The value of a (naïve) statement."
    assert tokenizer.decode(tokenizer.encode(text)) == "the value of a (naive) statement."
    log = capsys.readouterr()
    assert re.search(r"read [\d,]+ sentences from [\d,]+ documents\n", log.out)
    assert re.search(r"trained 300 pieces in [\d.]+ s", log.out)


@pytest.mark.parametrize("max_sentences", [50, 2_000_000])
def test_the_same_input_and_seed_give_the_same_bytes(options, tmp_path, max_sentences):
    options = dataclasses.replace(options, max_sentences=max_sentences, vocab_size=120)
    again = dataclasses.replace(options, output=str(tmp_path / "again"))
    other = dataclasses.replace(options, output=str(tmp_path / "other"), seed=1)
    for each in (options, again, other):
        train_tokenizer(each)
    assert model_bytes(options) == model_bytes(again)
    sampled = max_sentences == 50
    assert (model_bytes(options) != model_bytes(other)) == sampled


def test_normalization_is_trained_on_and_stored(options):
    options = dataclasses.replace(options, lowercase=False, strip_accents=False, unify_quotes=True)
    train_tokenizer(options)
    tokenizer = load_tokenizer(options.output)
    assert tokenizer.normalization == Normalization(False, False, True)
    assert tokenizer.decode(tokenizer.encode("Café ``Été''")) == 'Café "Été"'
    assert tokenizer.special.unk not in tokenizer.encode("Café ``Été''")


@pytest.mark.parametrize("fold", [True, False])
def test_typographic_punctuation_is_folded_unless_a_flag_forbids_it(
    options, tmp_path, capsys, fold
):
    """The text has ’ and “ itself: without the rules, they get pieces of their own."""
    source = tmp_path / "typographic.txt"
    source.write_text(
        "It’s “well” – they’d say — it’s: the value of a statement.\n\n" * 50, encoding="utf-8"
    )
    options = dataclasses.replace(
        options, corpus=f"text:{source}", vocab_size=34 if fold else 37, fold_punctuation=fold
    )
    train_tokenizer(options)
    said = "the model reads typographic quotes, dashes and bullets as ' \" - * (docs/data.md)\n"
    assert (said in capsys.readouterr().out) == fold
    tokenizer = load_tokenizer(options.output)
    assert tokenizer.special.unk not in tokenizer.encode("it’s “well” —")
    assert (tokenizer.encode("it’s “well” —") == tokenizer.encode('it\'s "well" -')) == fold
    assert ("’" in tokenizer.vocabulary.pieces) != fold
    assert tokenizer.pieces("–")[-1] == "–"  # one of ALBERT's pieces
    with pytest.raises(InputError, match="other options.*fold_punctuation"):
        train_tokenizer(dataclasses.replace(options, fold_punctuation=not fold))


def test_a_complete_output_is_kept_and_another_one_refused(options, capsys):
    train_tokenizer(options)
    before = os.stat(os.path.join(options.output, "spiece.model")).st_mtime_ns
    assert train_tokenizer(options) == 0
    assert "already complete" in capsys.readouterr().out
    assert os.stat(os.path.join(options.output, "spiece.model")).st_mtime_ns == before
    with pytest.raises(InputError, match="other options.*vocab_size: 300 != 299"):
        train_tokenizer(dataclasses.replace(options, vocab_size=299))


def test_a_corpus_that_moved_is_the_same(options, capsys, tmp_path):
    train_tokenizer(options)
    source = pathlib.Path(options.corpus.removeprefix("text:"))
    moved = tmp_path / "moved" / source.name
    moved.parent.mkdir()
    moved.write_bytes(source.read_bytes())
    train_tokenizer(dataclasses.replace(options, corpus=f"text:{moved}"))
    assert "already complete" in capsys.readouterr().out
    moved.write_bytes(source.read_bytes() + b"More.\n")
    with pytest.raises(InputError, match=r"other options \(corpus_fingerprint: '\w+' != '\w+'\)"):
        train_tokenizer(dataclasses.replace(options, corpus=f"text:{moved}"))


def test_foreign_content_is_refused_and_left_alone(options, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="new or empty folder"):
        train_tokenizer(options)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_text_without_sentence_ends_is_trained_on(tmp_path, capsys):
    """Logs, Thai, Hangul: sentencepiece by itself leaves out what has more than 4192 bytes."""
    (tmp_path / "log.txt").write_text(
        "open door shut window " * 300
        + "\n\n"
        + "\u0e01\u0e32\u0e02" * 2000
        + "\n\n"
        + "한국" * 1500
    )
    out = str(tmp_path / "out")
    train_tokenizer(TrainTokenizerOptions(f"text:{tmp_path}/*.txt", out, vocab_size=36))
    tokenizer = load_tokenizer(out)
    for word in ("open window", "\u0e01\u0e02", "한국"):
        assert tokenizer.special.unk not in tokenizer.encode(word)
    assert "have no space" not in capsys.readouterr().out


def test_impossible_vocabularies_name_the_possible_ones(options, tmp_path):
    with pytest.raises(InputError, match=r"--vocab_size.*at most \d+.*50000") as error:
        train_tokenizer(dataclasses.replace(options, vocab_size=50_000))
    assert list(tmp_path.iterdir()) == []  # nothing under the final name, nothing beside it
    largest = int(re.search(r"at most (\d+)", str(error.value))[1])
    assert train_tokenizer(dataclasses.replace(options, vocab_size=largest)) == 0
    with pytest.raises(InputError, match=r"--vocab_size.*at least \d+.*Received: 20"):
        out = str(tmp_path / "few")
        train_tokenizer(dataclasses.replace(options, vocab_size=20, output=out))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 13}, "--vocab_size must be above 13"),
        ({"max_sentences": 0}, "--max_sentences"),
        ({"character_coverage": 0.5}, "--character_coverage"),
        ({"output": "/dev/null/tokenizer"}, "--output=/dev/null/tokenizer cannot be written"),
        ({"corpus": "nonsense"}, "--corpus"),
    ],
)
def test_mistakes_name_the_flag(options, change, message):
    with pytest.raises(InputError, match=message):
        train_tokenizer(dataclasses.replace(options, **change))


def test_a_dry_run_prints_the_options_and_writes_nothing(options, capsys, tmp_path):
    assert train_tokenizer(dataclasses.replace(options, dry_run=True)) == 0
    assert '"vocab_size": 300' in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"errors": "ignore"}, {"document_boundary": "line"}])
def test_a_dry_run_checks_the_options(options, change):
    with pytest.raises(InputError, match=f"--{next(iter(change))} must be"):
        train_tokenizer(dataclasses.replace(options, dry_run=True, **change))


def test_the_command_line_gives_the_defaults_of_the_paper(corpus):
    argv = ["train_tokenizer", f"--corpus={corpus}", "--output=out", "--set", "lowercase=false"]
    options = commands.parse(TrainTokenizerOptions, argv, "", "")
    assert (options.vocab_size, options.character_coverage) == (30_000, 0.99995)
    assert not options.lowercase


def test_the_models_own_log_is_silent(options):
    flags = [f"--corpus={options.corpus}", f"--output={options.output}", "--vocab_size=300"]
    command = [sys.executable, "-m", "data.train_tokenizer", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    _, _, _, *facts = done.stdout.splitlines()
    assert facts[0] == "" and facts[-1].startswith("Recommended: pretraining.adapt")
    assert all(line.startswith("|") for line in filter(None, facts[:-1]))
    done = subprocess.run(
        [*command[:-1], "--vocab_size=9000"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


@pytest.fixture
def extension(corpus, tiny_tokenizer, tmp_path) -> TrainTokenizerOptions:
    out = str(tmp_path / "out")
    return TrainTokenizerOptions(corpus, out, extend=tiny_tokenizer, new_pieces=20)


def test_an_extension_says_what_it_added(extension, tiny_tokenizer, capsys, tmp_path):
    assert train_tokenizer(extension) == 0
    old, new = load_tokenizer(tiny_tokenizer), load_tokenizer(extension.output)
    added = new.training["added"]
    assert new.vocab_size == 200 + len(added["characters"]) + 20 and added["pieces"] == 20
    assert new.vocabulary.pieces[:200] == old.vocabulary.pieces
    said = capsys.readouterr().out
    assert f"added {len(added['characters'])} characters and 20 pieces to 200 in " in said
    assert re.search(r"words; pieces a word: \d\.\d+ -> \d\.\d+; unknown: [\d.]+% -> ", said)
    before = model_bytes(extension)
    assert train_tokenizer(extension) == 0
    assert "already complete" in capsys.readouterr().out
    again = dataclasses.replace(extension, output=str(tmp_path / "again"))
    train_tokenizer(again)
    assert model_bytes(again) == before
    with pytest.raises(InputError, match="other options.*new_pieces: 20 != 21"):
        train_tokenizer(dataclasses.replace(extension, new_pieces=21))


def test_an_extension_of_a_split_reads_its_documents_alone(extension, capsys):
    train_tokenizer(dataclasses.replace(extension, new_pieces=0, split="heldout"))
    total = int(re.search(r"from ([\d,]+) documents", capsys.readouterr().out)[1].replace(",", ""))
    train = dataclasses.replace(extension, output=f"{extension.output}2", split="train")
    train_tokenizer(dataclasses.replace(train, new_pieces=0))
    rest = int(re.search(r"from ([\d,]+) documents", capsys.readouterr().out)[1].replace(",", ""))
    train_tokenizer(dataclasses.replace(extension, output=f"{extension.output}3", new_pieces=0))
    assert f"from {total + rest} documents" in capsys.readouterr().out
    with pytest.raises(InputError, match="--split=heldout selects no document.*1e-09"):
        given = {"split": "heldout", "heldout_fraction": 1e-9}
        train_tokenizer(dataclasses.replace(extension, output=f"{extension.output}4", **given))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 900}, "--vocab_size does not apply to --extend.*Received: 900"),
        ({"lowercase": False}, "--lowercase does not apply to --extend"),
        ({"extend": None}, "--new_pieces requires --extend"),
        ({"extend": "nowhere"}, "no file or folder 'nowhere'"),
        ({"new_pieces": 90_000}, r"--new_pieces must be at most [\d,]+ for this text"),
    ],
)
def test_mistakes_of_extensions(extension, change, message, tmp_path):
    with pytest.raises(InputError, match=message):
        train_tokenizer(dataclasses.replace(extension, **change))
    assert list(tmp_path.iterdir()) == []
