"""What the page and the notebook show is what happens."""

import json

import pytest

from documents import BLOCK, DOCUMENTS, NOTEBOOK, PAGE

HOW = "tests/python/documents.py --write puts today's output in place"


@pytest.mark.parametrize("place", DOCUMENTS, ids=lambda place: place.name)
@pytest.mark.filterwarnings("error")
def test_it_shows_what_happens(place):
    shown = place.read_text()
    assert DOCUMENTS[place](shown) == shown, HOW


def test_the_checks_of_a_job_take_five_lines():
    section = PAGE.read_text().split("## From a training script")[1]
    checks = [code for kind, code in BLOCK.findall(section) if kind == "python" and "sys.exit" in code]
    assert len(checks) == 2
    for code in checks:
        assert len([line for line in code.splitlines() if line.strip()]) <= 5


def test_the_notebook_is_one():
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4 and {cell["cell_type"] for cell in notebook["cells"]} == {"markdown", "code"}
    assert all(len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"]) for _ in [0])
