"""Memory that two processes see, which grows."""

import os

import numpy as np
import pytest

from disttrain.serve.slabs import Slab, aligned


def test_what_one_writes_the_other_reads_also_after_it_has_grown() -> None:
    writer = Slab()
    reader = Slab(os.dup(writer.fd))
    for size in (3, 100_000, 1_000_000):
        writer.grow(aligned(8 * size) + 4)
        writer.array(0, (size,), np.dtype(float))[:] = size
        writer.array(aligned(8 * size), (), np.dtype("int32"))[...] = 7
        assert (reader.array(0, (size,), np.dtype(float)) == size).all()
        assert reader.array(aligned(8 * size), (), np.dtype("int32")) == 7
    old = reader.array(0, (3,), np.dtype(float))
    for slab in (writer, reader):
        slab.close()
    assert old[0] == 1_000_000  # arrays live on


def test_memory_of_a_large_batch_is_given_back() -> None:
    writer = Slab()
    reader = Slab(os.dup(writer.fd))
    for size in (1 << 26, 100, 1 << 25, 9 << 20, 1 << 26, 20 << 20):
        writer.grow(size)
        assert size <= os.fstat(writer.fd).st_size <= max(4 * size, 1 << 22)
        writer.array(0, (size,), np.dtype("uint8"))[:] = size % 251
        assert reader.array(size - 1, (1,), np.dtype("uint8"))[0] == size % 251
    for slab in (writer, reader):
        slab.close()


def test_arrays_of_nothing_are_arrays() -> None:
    slab = Slab()
    assert slab.array(0, (0, 3), np.dtype("float32")).shape == (0, 3)
    assert [aligned(k) for k in (0, 1, 64, 65)] == [0, 64, 64, 128]
    slab.close()


def test_memory_that_is_not_there_is_an_error_at_once() -> None:
    slab = Slab()
    with pytest.raises(MemoryError):
        slab.grow(1 << 60)
    slab.close()
