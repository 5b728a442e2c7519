"""Copies in memory that is used again."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.record.log import buffers
from disttrain.record.log.buffers import SHORT, Buffers

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64", "complex64", ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [1, 100, SHORT])
def test_copies_have_the_bytes_and_stay(dtype, size):
    array = np.arange(size).astype(dtype)
    turned = np.arange(4 * size).astype(dtype).reshape(4, size).T
    wanted = [array.tobytes(), turned.tobytes()]
    found = Buffers().copies([array, array[:0], turned])
    array[:] = turned[:] = 0
    assert [bytes(part) for part in found] == wanted


def test_memory_is_used_again_and_not_before_it_was_given_back():
    kept = Buffers()
    array = np.arange(SHORT, dtype=np.uint8)
    [first] = kept.copies([array])
    [second] = kept.copies([array])
    assert first is not second
    kept.give_back([second, b"short"])
    [third], [fourth] = kept.copies([array]), kept.copies([array])
    assert third is second and fourth is not first


def test_not_all_of_it_is_kept(monkeypatch):
    monkeypatch.setattr(buffers, "_MOST", SHORT)
    kept = Buffers()
    copies = kept.copies([np.zeros(SHORT, np.uint8)] * 3)
    kept.give_back(copies)
    again = kept.copies([np.zeros(SHORT, np.uint8)] * 3)
    assert [any(a is c for c in copies) for a in again] == [True, False, False]
