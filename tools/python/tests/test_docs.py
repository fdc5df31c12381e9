"""The lines in Python of README.md and docs/python.md run."""

import pathlib
import re

import pytest

TREE = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name, least", [("README.md", 1), ("docs/python.md", 5)])
def test_the_page_runs(name, least, tmp_path, monkeypatch):
    page = TREE / name
    if not page.exists():
        pytest.skip("the documentation is not here")
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert len(blocks) >= least
    names = {"__name__": "page"}
    for block in blocks:
        lines_before = "\n" * text.count("\n", 0, block.start(1))  # so that errors name the page's lines
        exec(compile(lines_before + block[1], str(page), "exec"), names)
