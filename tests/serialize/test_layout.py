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


@pytest.mark.parametrize("length", [0x280, 0x380, 0x480, 0x580, 0x8B1F])
def test_a_length_may_begin_like_a_file_of_another_format(tmp_path, length):
    """0x80 and a protocol begin a pickle, 0x1f 0x8b a gzip file; others write any lengths."""
    text = b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'.ljust(length)
    (tmp_path / "f.safetensors").write_bytes(length.to_bytes(8, "little") + text + b"\x05\x06")
    assert dt.load(tmp_path / "f.safetensors")["a"].tolist() == [5, 6]
    (tmp_path / "f").write_bytes(length.to_bytes(8, "little") + b"]" + text[1:] + b"\x05\x06")
    with pytest.raises(SerializationError, match="this is a"):
        dt.load(tmp_path / "f")
