"""examples/tour.ipynb: its stored outputs, and the notebook run anew."""

import json
import os
import pathlib
import re
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOUR = ROOT / "examples" / "tour.ipynb"


def code_cells(path: pathlib.Path) -> list[dict]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_outputs_are_stored_in_order_and_name_no_machine():
    cells = code_cells(TOUR)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 4
    assert not [output for output in outputs if output["output_type"] == "error"]
    text = TOUR.read_text(encoding="utf-8")
    assert not re.search(r"/(root|home|work|tmp|usr)/", text) and len(text.encode()) < 300_000


@pytest.mark.slow
def test_it_runs_from_an_empty_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    monkeypatch.chdir(tmp_path)
    shutil.copy(TOUR, tmp_path)
    notebook = nbformat.read(tmp_path / TOUR.name, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert first.source.count('SOURCE = ".."') == 1
    first.source = first.source.replace('SOURCE = ".."', f"SOURCE = {os.fspath(ROOT)!r}")
    nbclient.NotebookClient(notebook, timeout=3000).execute()
    nbformat.write(notebook, tmp_path / TOUR.name)
    maps = [
        cell for cell in code_cells(tmp_path / TOUR.name) if "imshow" in "".join(cell["source"])
    ]
    assert len(maps) == 2  # similar sentences, and the confusion matrix
    for cell in maps:
        assert any("image/png" in output.get("data", {}) for output in cell["outputs"])
    assert (tmp_path / "tour" / "export" / "1" / "saved_model.pb").is_file()
