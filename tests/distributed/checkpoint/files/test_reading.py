"""Boxes of stored arrays read into tensors: any box, any memory, few bytes, each block checked."""

from __future__ import annotations

import itertools
import os

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.llvm.checksum import BLOCK, crc32c_blocks
from disttrain.core import wrap
from disttrain.distributed.checkpoint.files import folder, reading
from disttrain.distributed.checkpoint.files.manifest import Place
from disttrain.distributed.checkpoint.files.reading import Files
from disttrain.distributed.checkpoint.files.shards import hex_of
from disttrain.errors import SerializationError

pytestmark = pytest.mark.simulated

NAME = folder.shard_name("0" * 24, 0, 1)
START = 64  # where the array begins in the file


def stored(where, array, header=False):
    """The array in a file of that folder, and its place."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    (where / NAME).write_bytes(b"\0" * START + raw.tobytes())
    return Place(NAME, START, START + raw.size, hex_of(crc32c_blocks(raw)) if raw.size else "")


def files(where, verify=False):
    return Files(str(where), {NAME: os.stat(where / NAME).st_size}, verify)


def read(where, array, place, box, target):
    with files(where) as found:
        found.fill(target, place, "w", array.dtype, array.shape, box)
    return target


@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 4, 5)])
def test_any_box_of_any_array(tmp_path, shape):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    place = stored(tmp_path, array)
    for at in itertools.product(*(range(0, n, 2) for n in shape)):
        sizes = tuple(min(3, n - a) for a, n in zip(at, shape))
        target = dt.zeros(sizes)
        read(tmp_path, array, place, (at, sizes), target)
        box = tuple(slice(a, a + n) for a, n in zip(at, sizes))
        np.testing.assert_array_equal(target.numpy(), array[box])


@pytest.mark.parametrize("kind", ["f8", "f2", ml_dtypes.bfloat16, "i8", "u1", "?", "c8"], ids=str)
def test_types_are_converted_to_those_of_the_target(tmp_path, kind):
    array = np.arange(6).reshape(2, 3).astype(kind)
    place = stored(tmp_path, array)
    same = wrap(np.zeros((2, 3), kind))
    read(tmp_path, array, place, ((0, 0), (2, 3)), same)
    assert same.array.tobytes() == array.tobytes()
    if np.dtype(kind).kind != "c":
        turned = wrap(np.zeros((3, 2)).T)
        read(tmp_path, array, place, ((0, 0), (2, 3)), turned)
        np.testing.assert_array_equal(turned.numpy(), array.astype("f8"))


def test_scalars_and_what_is_empty(tmp_path):
    array = np.array(2.5)
    target = wrap(np.zeros(()))
    read(tmp_path, array, stored(tmp_path, array), ((), ()), target)
    assert target.item() == 2.5
    empty = np.zeros((0, 3))
    read(tmp_path, empty, Place("absent", 0, 0, ""), ((0, 0), (0, 3)), wrap(np.zeros((0, 3))))


def test_what_is_filled_counts_as_written(tmp_path):
    array = np.ones(3, np.float32)
    x, target = dt.ones(3, requires_grad=True), dt.zeros(3)
    y = (x * target).sum()
    read(tmp_path, array, stored(tmp_path, array), ((0,), (3,)), target)
    with pytest.raises(RuntimeError, match=r"in place|in-place|modified"):
        y.backward()


def test_only_blocks_that_the_box_lies_in_are_read(tmp_path, monkeypatch):
    per = BLOCK // 8
    array = np.arange(4 * per, dtype=np.float64).reshape(4 * per // 64, 64)
    place = stored(tmp_path, array)
    seen, plain = [], os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, parts, at: seen.append(at) or plain(fd, parts, at))
    target = wrap(np.zeros((2, 64)))
    row = per // 64  # the first of the second block
    read(tmp_path, array, place, ((row - 1, 0), (2, 64)), target)
    np.testing.assert_array_equal(target.numpy(), array[row - 1 : row + 1])
    assert [(at - START) // BLOCK for at in seen] == [0, 1]


def test_large_boxes_are_read_in_halves(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_SPAN", BLOCK)
    array = np.arange(3 * BLOCK // 8, dtype=np.float64).reshape(-1, 16)
    place = stored(tmp_path, array)
    target = wrap(np.zeros((array.shape[0], 5)))
    read(tmp_path, array, place, ((0, 3), target.array.shape), target)
    np.testing.assert_array_equal(target.numpy(), array[:, 3:8])


def test_a_damaged_block_is_named_and_others_can_be_read(tmp_path):
    array = np.zeros(2 * BLOCK, np.uint8)
    place = stored(tmp_path, array)
    data = bytearray((tmp_path / NAME).read_bytes())
    data[START + BLOCK + 5] ^= 1
    (tmp_path / NAME).write_bytes(data)
    with files(tmp_path, verify=True) as found:
        found._check_header = lambda *args: None
        target = wrap(np.ones(10, np.uint8))
        found.fill(target, place, "w", array.dtype, array.shape, ((0,), (10,)))
        assert not target.array.any()
        where = f"tensor 'w': the bytes {START + BLOCK} to {START + 2 * BLOCK} do not fit"
        with pytest.raises(SerializationError, match=where):
            found.fill(target, place, "w", array.dtype, array.shape, ((BLOCK,), (10,)))
        with pytest.raises(SerializationError, match=where):
            found.whole(place, "w")


def test_files_of_another_size_are_refused_and_all_are_closed(tmp_path):
    place = stored(tmp_path, np.zeros(8, np.uint8))
    before = len(os.listdir("/proc/self/fd"))
    with Files(str(tmp_path), {NAME: 10}, False) as found:
        with pytest.raises(SerializationError, match=r"72 bytes, and the manifest says 10"):
            found.whole(place, "w")
    assert len(os.listdir("/proc/self/fd")) == before
    with files(tmp_path) as found:
        found.whole(place, "w")
        os.truncate(tmp_path / NAME, 70)
        with pytest.raises(SerializationError, match="the file ends at byte 70; it is cut short"):
            found.whole(place, "w")


def test_truth_values_are_0_or_1(tmp_path):
    array = np.array([0, 2], np.uint8)
    place = stored(tmp_path, array)
    with files(tmp_path) as found, pytest.raises(SerializationError, match="a truth value is 2"):
        found.fill(wrap(np.zeros(2, bool)), place, "w", np.dtype(bool), (2,), ((0,), (2,)))


def test_ranges_that_touch_are_one():
    first, last = np.array([0, 0, 1, 4, 5]), np.array([1, 1, 2, 5, 6])
    assert reading._spans(first, last) == [(0, 2), (4, 6)]
    assert reading._spans(np.array([3]), np.array([9])) == [(3, 9)]
