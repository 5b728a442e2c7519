"""The page as one text: what stands in it, with its data and without, and what it may not do."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from disttrain.board import page
from disttrain.errors import ConfigError


@pytest.fixture
def library(tmp_path, monkeypatch):
    path = tmp_path / "plotly" / "package_data" / "plotly.min.js"
    path.parent.mkdir(parents=True)
    path.write_text("const PLOTLY = 1;")
    installed(monkeypatch, SimpleNamespace(submodule_search_locations=[str(tmp_path / "plotly")]))
    return path


def installed(monkeypatch, spec):
    """Let that be what Python finds of any package."""
    util = SimpleNamespace(find_spec=lambda name: spec)
    monkeypatch.setattr(page, "importlib", SimpleNamespace(util=util))


def test_every_part_has_its_place_once():
    text = page.document()
    assert "<!-- " not in text and text.count("<style>") == 1
    assert text.count('<script src="plotly.min.js"></script>') == 1
    assert "<script>const SNAPSHOT = null;\n" in text


def test_a_page_with_its_data_asks_nobody(library):
    data = {"runs": [{"name": "</script><script>alert(1)//"}]}
    text = page.document(data)
    assert "const PLOTLY = 1;" in text and "src=" not in text.split("<body")[0]
    assert "<script>alert" not in text and text.count("<script>") == 2
    kept = re.search(r"const SNAPSHOT = (.*);\n", text)[1]
    assert json.loads(kept) == data


def test_where_the_library_is_missing_that_is_said(library, monkeypatch):
    assert page.plotting_library() == library
    library.unlink()
    with pytest.raises(ConfigError, match=r"plotly is missing.*pip install 'disttrain\[board\]'"):
        page.plotting_library()
    installed(monkeypatch, None)
    with pytest.raises(ConfigError, match="plotly is missing"):
        page.document({})
