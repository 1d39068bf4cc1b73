"""`finetuning.embed`: vectors of a teacher in their file, from where it was interrupted."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

import albert_tf
from albert_tf.runtime.errors import InputError, MachineError
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.embeddings.embedding_data import EmbeddingData
from finetuning.embed import EmbedOptions, main

TEXTS = [f"text number {number}" for number in range(10)]


# A teacher that counts: the vector of `text number 3` is (3, 1). It fails at the number in a file.
PACKAGE = """
import json, pathlib
import numpy as np

class SentenceTransformer:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        assert self.path.is_dir()

    def encode(self, texts, batch_size, show_progress_bar, convert_to_numpy):
        print("a note of the package")
        with open(self.path.parent / "calls", "a") as file:
            file.write(json.dumps(texts) + "\\n")
        numbers = [int(text.split()[-1]) for text in texts if text != "a text"]
        fails_at = self.path.parent / "fails_at"
        if fails_at.exists() and int(fails_at.read_text()) in numbers:
            raise SystemExit(3)
        return np.array([[number, 1] for number in numbers or [0]], np.float64)
"""


@pytest.fixture
def options(tmp_path, monkeypatch) -> EmbedOptions:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "sentence_transformers.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "modules.json").write_text("[]")
    (tmp_path / "train.tsv").write_text("text\n" + "\n".join(TEXTS) + "\n")
    (tmp_path / "dev.tsv").write_text("query\tpassage\na\tb\n")
    return EmbedOptions(str(tmp_path / "teacher"), str(tmp_path))


def test_they_are_read_as_labels(options):
    main(options, 4)
    data = DATASETS["embedding"].read(Source(options.data_dir))
    assert (data.task.loss, data.task.projection) == ("teacher_cosine", 2)
    found = [np.asarray(each.label).tolist() for each in data.train]
    assert found == [[number, 1] for number in range(10)]


def test_vectors_are_stored_once(options, capsys):
    main(options, 4)
    main(options, 4)
    assert capsys.readouterr().out.endswith("train.vectors is already complete\n")
    with pytest.raises(InputError, match="vectors' exists, .* another teacher or --prompt"):
        main(dataclasses.replace(options, prompt="query: "), 4)
    with open(f"{options.data_dir}/train.tsv", "a") as file:
        file.write("one more\n")
    with pytest.raises(InputError, match="11 texts. Remove '.*train.vectors'"):
        main(options, 4)


def test_it_continues_where_it_was_interrupted(options):
    """Not with another teacher at the same path."""
    folder = pathlib.Path(options.data_dir)
    (folder / "fails_at").write_text("9")
    with pytest.raises(MachineError, match="--teacher=.*ended with exit status 3"):
        main(options, 4)
    assert not (pathlib.Path(options.data_dir) / "train.vectors").exists()
    (folder / "fails_at").unlink()
    (folder / "calls").unlink()
    (folder / "teacher" / "weights").write_text("others")
    with pytest.raises(InputError, match="another input left its work in .*train.vectors.incomp"):
        main(options, 4)
    (folder / "calls").unlink()
    (folder / "teacher" / "weights").unlink()
    main(options, 4)
    calls = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    assert calls == [["a text"], TEXTS[:1], TEXTS[8:]]
    vectors = np.load(f"{options.data_dir}/train.vectors/vectors.npy")
    assert vectors.dtype == np.float16 and vectors[:, 0].tolist() == [*range(10)]


def test_a_model_that_the_package_cannot_load(options):
    (pathlib.Path(options.data_dir) / "packages" / "sentence_transformers.py").write_text("1 / 0")
    with pytest.raises(InputError, match="ended with exit status 1"):
        main(options)


def test_a_vector_too_large_for_float16(options):
    with open(f"{options.data_dir}/train.tsv", "a") as file:
        file.write("text number 70000\n")
    with pytest.raises(InputError, match="the vector of text 10, .*'text number 70000'"):
        main(options, 4)


def test_a_column_of_another_name(options):
    path = pathlib.Path(options.data_dir, "train.tsv")
    path.write_text("id\ttitle\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(TEXTS)))
    main(EmbedOptions(**vars(options) | {"text_column": ("title",)}))
    source = Source(options.data_dir, reading=Reading(("title",)))
    found = EmbeddingData().examples(source, "train")
    assert [np.asarray(each.label)[0] for each in found] == [*range(10)]


def test_pairs_are_refused(options):
    path = pathlib.Path(options.data_dir, "train.tsv")
    path.write_text("query\tpassage\na\tb\n")
    with pytest.raises(InputError, match="must hold single texts"):
        main(options)


def test_an_encoder_of_ours(options, start: str, capsys):
    ours = EmbedOptions(start, options.data_dir, prompt="the ")
    main(ours)
    wanted = albert_tf.load_embedder(start)(TEXTS, prompt="the ")
    np.testing.assert_allclose(
        np.load(f"{options.data_dir}/train.vectors/vectors.npy"), wanted, atol=1e-3
    )
    about = json.loads(pathlib.Path(options.data_dir, "train.vectors", "texts.json").read_text())
    assert about["prompt"] == "the " and about["teacher"].endswith("start")
