"""What a checkpoint says of itself: names of chunks, and what is known of a tensor."""

from __future__ import annotations

import pickle

import pytest

import disttrain as dt
from disttrain.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)

pytestmark = pytest.mark.simulated


def test_a_chunk_is_named_by_its_place_and_not_by_the_hint():
    a, b = MetadataIndex("w", [1, 0], 3), MetadataIndex("w", dt.Size((1, 0)))
    assert a == b and hash(a) == hash(b) and {a: 1}[b] == 1
    assert type(a.offset) is dt.Size and (a.index, b.index) == (3, None)
    assert a != MetadataIndex("w", (0, 1)) and a != MetadataIndex("v", (1, 0))
    assert MetadataIndex("w") != MetadataIndex("w", ()) and MetadataIndex("w").offset is None
    assert pickle.loads(pickle.dumps(a)).index == 3
    with pytest.raises(AttributeError):
        a.fqn = "x"  # a key of dicts


def test_what_is_known_of_a_tensor():
    told = TensorProperties.create_from_tensor(dt.ones(2, dtype=dt.float64, requires_grad=True))
    assert (told.dtype, told.requires_grad) == (dt.float64, True)
    assert TensorProperties().dtype is dt.float32 and not TensorProperties().requires_grad
    before = dt.get_default_dtype()
    dt.set_default_dtype(dt.float64)
    try:
        assert TensorProperties().dtype is dt.float64
    finally:
        dt.set_default_dtype(before)


def test_lists_are_not_shared():
    one, two = StorageMeta(), StorageMeta()
    one.modules.append("a")
    assert two.modules == [] and Metadata({}).storage_meta is None
