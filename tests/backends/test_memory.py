"""Memory that several processes see."""

from __future__ import annotations

import os

import numpy as np
import pytest

from disttrain.backends.memory import Block, Memory, make_memory, owner_of, place_of


def test_mappings_of_one_file_are_one_memory():
    block = Block(make_memory("test", 4096), 4096)
    other = Memory(block.fd, 4096)
    block.array()[:4] = [1, 2, 3, 4]
    assert other.array()[:4].tolist() == [1, 2, 3, 4]
    array = other.array()
    del other
    assert array[3] == 4  # the array holds the mapping


def test_pieces_know_where_they_lie():
    block = Block(make_memory("test", 8192), 8192)
    piece = block.piece(128, 64)
    numbers = piece.view(np.float32).reshape(4, 4)[1:, ::2]
    found, start, size = place_of(numbers)
    assert found is block and (start, size) == (128, 64)
    assert place_of(np.zeros(3)) is None and place_of(block.array()) is None
    assert owner_of(numbers).nbytes == 64


def test_descriptors_are_closed_with_the_block():
    block = Block(make_memory("test", 4096), 4096)
    fd = block.fd
    del block
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_what_cannot_be_had_is_told_at_once():
    with pytest.raises(MemoryError, match="bytes of shared memory"):
        make_memory("test", 0)
