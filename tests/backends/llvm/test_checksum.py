"""CRC-32C of blocks: machine code and numpy give the number that RFC 3720 defines."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends import host
from disttrain.backends.llvm import checksum
from disttrain.tfrecord import crc32c

SIZES = [1, 7, 8, 9, 63, 64, 255, 256, 257, 511, 512, 2047, 2048, 40_003]


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


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_vectors_of_any_width_give_it(monkeypatch, bits):
    if bits > checksum._bits(host.cpu().features):
        bits = 128
    monkeypatch.setattr(checksum, "_bits", lambda features: bits)
    function = checksum._compiled.__wrapped__()
    for size in SIZES:
        raw, out = data(size, bits), np.zeros(1, np.uint32)
        function(raw.ctypes.data, size, 1 << 20, out.ctypes.data)
        assert out[0] == crc32c(raw.tobytes())


def test_every_block_has_its_own_number():
    raw = data(20_000)
    expected = [crc32c(raw[k : k + 6_000].tobytes()) for k in range(0, 20_000, 6_000)]
    assert checksum.crc32c_blocks(raw, 6_000).tolist() == expected
    assert checksum.crc32c_blocks(raw[1:], 6_000).tolist() != expected
    assert checksum.crc32c_blocks(raw[:0]).tolist() == []


def test_numpy_does_the_same_where_there_is_no_machine_code(monkeypatch):
    raw = data(20_000, 1)
    fast = checksum.crc32c_blocks(raw, 6_000)
    monkeypatch.setattr(checksum, "_compiled", lambda: None)
    np.testing.assert_array_equal(checksum.crc32c_blocks(raw, 6_000), fast)
    assert not checksum.is_fast()


def test_a_bit_anywhere_changes_it():
    raw = data(17_000, 2)
    before = checksum.crc32c_blocks(raw)[0]
    for at in range(0, 17_000, 371):
        raw[at] ^= 1 << at % 8
        assert checksum.crc32c_blocks(raw)[0] != before
        raw[at] ^= 1 << at % 8
