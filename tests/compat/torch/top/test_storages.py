"""Storages by the names of their types."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch.top import storages

NAMES = storages.names()


@pytest.mark.parametrize("name", storages.KINDS)
def test_a_class_makes_storages_and_knows_them(name):
    cls = NAMES[f"{name}Storage"]
    made = cls([1, 0])
    kind = getattr(dt, storages.KINDS[name])
    assert (
        made.dtype is cls.dtype is kind and made.tolist() == dt.tensor([1, 0], dtype=kind).tolist()
    )
    assert len(cls(3)) == 3 and len(cls()) == 0
    t = dt.zeros(2, dtype=kind)
    assert isinstance(t.storage(), cls) and isinstance(t.storage(), NAMES["TypedStorage"])
    assert not isinstance(dt.zeros(2, dtype=dt.uint16).storage(), cls)
    assert storages.storage_type(t) is cls


def test_bytes_and_types_by_argument():
    raw = NAMES["UntypedStorage"](6)
    assert raw.nbytes() == 6 and isinstance(dt.ones(1).untyped_storage(), NAMES["UntypedStorage"])
    t = dt.ones(2)
    assert NAMES["UntypedStorage"](t) == t.untyped_storage()
    typed = NAMES["TypedStorage"]([1, 2], dtype=dt.int16)
    assert typed.dtype is dt.int16 and typed.tolist() == [1, 2]
    again = NAMES["TypedStorage"](wrap_storage=t.untyped_storage(), dtype=dt.float32)
    assert again == t.storage()
    assert NAMES["Storage"] is NAMES["FloatStorage"]


def test_storages_of_buffers_and_files(tmp_path):
    memory = bytearray([0, 1, 2, 3])
    made = storages.names()
    assert made["ByteStorage"].from_buffer(memory).tolist() == [0, 1, 2, 3]
    assert made["ShortStorage"].from_buffer(memory, "big").tolist() == [1, 515]
    assert made["BoolStorage"].from_buffer(memory, "big").tolist() == [False, True, True, True]
    path = str(tmp_path / "numbers")
    first = made["FloatStorage"].from_file(path, True, 5)
    first[0] = 3.0
    assert made["FloatStorage"].from_file(path, True, 5)[0] == 3.0


def test_tensors_over_storages():
    x = dt.ones(3)
    assert x.new(x.storage()).data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError):
        dt.ones(2, dtype=dt.int32).new(x.storage())
    assert x.storage().__sizeof__() - dt.ones(0).storage().__sizeof__() == 12


def test_storages_keep_their_size():
    memory = dt.ones(3).untyped_storage()
    assert memory.resize_(12) is memory and not memory.resizable()
    with pytest.raises(RuntimeError, match="not resizable"):
        memory.resize_(0)
