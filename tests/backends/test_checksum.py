"""CRC-32C of blocks: machine code and numpy give the number that RFC 3720 defines."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.llvm import checksum
from disttrain.metrics.crc32c import crc32c

SIZES = [1, 7, 8, 9, 2047, 2048, 5448, 3 * 5448 - 1, 3 * 5448, 3 * 5448 + 1, 40_003]


def data(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def test_the_check_value_of_the_standard():
    assert checksum.crc32c_blocks(np.frombuffer(b"123456789", np.uint8)).tolist() == [0xE3069283]


@pytest.mark.parametrize("size", SIZES)
def test_equals_the_definition(size):
    raw = data(size)
    expected = crc32c(raw.tobytes())
    assert checksum.crc32c_blocks(raw).tolist() == [expected]
    assert checksum._plain(raw) == expected


def test_every_block_has_its_own_number_and_the_copy_is_whole():
    raw = data(20_000)
    target = np.zeros_like(raw)
    sums = checksum.crc32c_blocks(raw, 6_000, into=target)
    expected = [crc32c(raw[k : k + 6_000].tobytes()) for k in range(0, 20_000, 6_000)]
    assert sums.tolist() == expected
    np.testing.assert_array_equal(target, raw)
    assert checksum.crc32c_blocks(raw[:0]).tolist() == []


def test_numpy_does_the_same_where_there_is_no_machine_code(monkeypatch):
    raw = data(20_000, 1)
    fast = checksum.crc32c_blocks(raw, 6_000)
    monkeypatch.setattr(checksum, "_compiled", lambda copy: None)
    target = np.zeros_like(raw)
    np.testing.assert_array_equal(checksum.crc32c_blocks(raw, 6_000, into=target), fast)
    np.testing.assert_array_equal(target, raw)
    assert not checksum.is_fast()


def test_a_bit_anywhere_changes_it():
    raw = data(17_000, 2)
    before = checksum.crc32c_blocks(raw)[0]
    for at in range(0, 17_000, 371):
        raw[at] ^= 1 << at % 8
        assert checksum.crc32c_blocks(raw)[0] != before
        raw[at] ^= 1 << at % 8
