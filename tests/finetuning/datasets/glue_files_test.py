"""GLUE's files where they are others: MRPC's own distribution, and files that csv has quoted."""

import dataclasses
import pathlib

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.glue import GLUE
from tests.finetuning.datasets.glue_test import LAYOUTS, PAIR, write

MSRP = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


class TestOfficialFilesOfMrpc:
    """Those of the Microsoft Research Paraphrase Corpus, with GLUE's dev rows among the others."""

    def folder(self, path: pathlib.Path, **parts: str) -> Source:
        rows = [f'{i % 2}\t{i}\t{i + 1}\tA "first {i}.\tA second.\r\n' for i in range(20)]
        (path / "msr_paraphrase_train.txt").write_text("\ufeff" + MSRP + "".join(rows))
        (path / "msr_paraphrase_test.txt").write_text(MSRP + "1\t7\t8\tA first.\tA second.\n")
        return write(path, parts)

    def test_dev_is_missing(self, tmp_path):
        source = self.folder(tmp_path)
        with pytest.raises(InputNotFoundError) as error:
            GLUE["mrpc"].read(source)
        words = (
            "no file dev.tsv (or the same named validation, valid or val, or with .gz, ",
            "the rows of msr_paraphrase_train.txt whose ids are in https://",
            "mrpc_dev_ids.tsv",
            "or run finetuning.train with --dev_fraction=0.1",
        )
        assert all(word in str(error.value) for word in words), error.value

    def test_a_fraction_for_dev(self, tmp_path):
        source = self.folder(tmp_path)
        data = GLUE["mrpc"].read(dataclasses.replace(source, reading=Reading(dev_fraction=0.3)))
        assert len(data.train) + len(data.dev["dev"]) == 20
        assert data.train[0].first.startswith('A "first')
        assert GLUE["mrpc"].read_part(source, "test", data.task) == [PAIR]

    def test_dev_is_no_part_of_train(self, tmp_path, capsys):
        source = self.folder(tmp_path, dev=f'{MSRP}1\t3\t4\tA "first 3.\tA second. \n')
        data = GLUE["mrpc"].read(source)
        assert len(data.train) == 19 and len(data.dev["dev"]) == 1
        assert 'A "first 3.' not in [example.first for example in data.train]
        assert "1 examples that are in the dev part left out" in capsys.readouterr().out

    def test_glue_s_own_files_come_first(self, tmp_path):
        source = self.folder(
            tmp_path, **dict.fromkeys(("train", "dev"), LAYOUTS["mrpc"][0]["train"])
        )
        assert GLUE["mrpc"].read_part(source, "train", GLUE["mrpc"].section) == [PAIR]
        (tmp_path / "empty").mkdir()
        for name, problem in (("empty", r"test\.tsv or msr_"), ("no", "no folder .*no")):
            with pytest.raises(InputNotFoundError, match=problem):
                GLUE["mrpc"].read_part(Source(str(tmp_path / name)), "test", GLUE["mrpc"].section)


def test_files_that_csv_quoted_are_noted(tmp_path, capsys):
    """The quotes of the texts stay; those of the header are in the way."""
    cola = write(tmp_path, {"dev": 'gj04\t1\t""\t"A first."\ngj04\t1\t""\t"""A"" second"\n'})
    examples = GLUE["cola"].read_part(cola, "dev", GLUE["cola"].section)
    assert [each.first for each in examples] == ['"A first."', '"""A"" second"']
    note = f"{tmp_path}/dev.tsv:1: the texts begin and end with quotes, which are text in this file"
    assert capsys.readouterr().err.startswith(note)
    rte = write(tmp_path, {"dev": '"index"\t"sentence1"\t"sentence2"\t"label"\n0\t"A"\t"B"\t"x"\n'})
    with pytest.raises(InputError, match=r"Quotes are text in this file\. Write it without quotes"):
        GLUE["rte"].read_part(rte, "dev", GLUE["rte"].section)
