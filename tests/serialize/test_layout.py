"""Headers of very many tensors: parsed in seconds, and nothing is saved that cannot be loaded."""

from __future__ import annotations

import gc
import io

import pytest

import disttrain as dt
from disttrain.errors import SerializationError
from disttrain.serialize import api, layout


def test_headers_of_many_tensors_are_parsed_without_collections(monkeypatch):
    """These look through all that was made so far, again and again, and find nothing."""
    entries = [layout.Entry(f"t{i}", "F32", (2, 2), 16 * i, 16 * i + 16) for i in range(20_000)]
    raw = layout.build(entries, {}, None)
    seen = []
    monkeypatch.setattr(gc, "callbacks", [*gc.callbacks, lambda phase, _: seen.append(phase)])
    header = layout.parse(raw, 320_000, "x")
    assert (list(header.entries.values()), seen) == (entries, [])
    assert gc.isenabled()


def test_a_name_that_stands_twice_is_found_among_many():
    """In one pass: a header with a name twice may come from anywhere."""
    pairs = ",".join(f'"t{i}":0' for i in [*range(100_000), 99_999])
    with pytest.raises(SerializationError, match="'t99999' stands twice"):
        layout.load_json(b"{%s}" % pairs.encode(), "x")


def test_what_cannot_be_loaded_again_is_not_saved(monkeypatch):
    """A header may be short enough, and have too many values in it."""
    monkeypatch.setattr(api, "check_items", lambda text, where: layout.check_items(text, where, 80))
    with pytest.raises(SerializationError, match="7 tensors: the header has"):
        dt.save({f"t{i}": dt.ones(1, 1, 1, 1, 1, 1) for i in range(7)}, io.BytesIO())
