"""Threefry: the published answers, and machine code beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.llvm import threefry

ANSWERS = [  # of Random123's file of known answers, 20 rounds: counter, key, block
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]
SIZES = [0, 1, 2, 15, 16, 17, 31, 33, 64, 1001]


def keys(m):
    return np.random.default_rng(m).integers(0, 1 << 32, (m, 2), np.uint32)


def test_known_answers():
    counts, given, blocks = (np.asarray([a[i] for a in ANSWERS], np.uint32) for i in range(3))
    assert threefry.blocks(given, counts).tolist() == blocks.tolist()
    with np.errstate(over="ignore"):
        a, b = threefry.plain_block((given[:, 0], given[:, 1]), counts[:, 0], counts[:, 1])
    assert np.stack([a, b], 1).tolist() == blocks.tolist()


@pytest.mark.parametrize("name", threefry._NAMES)
def test_equals_numpy(name):
    for m in (0, 1, 3):
        for n in SIZES:
            found = getattr(threefry, name)(keys(m), n)
            with np.errstate(over="ignore"):
                want = threefry.plain(name, keys(m), n)
            assert found.dtype == want.dtype and found.tobytes() == want.tobytes()


def test_numpy_alone(monkeypatch):
    want = threefry.words(keys(2), 5)
    monkeypatch.setattr(threefry, "_compiled", lambda: None)
    assert threefry.words(keys(2), 5).tolist() == want.tolist()
    assert threefry.blocks(keys(2), keys(2)).shape == (2, 2)
