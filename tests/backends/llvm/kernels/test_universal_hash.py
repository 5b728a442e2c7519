"""NH: by its definition, with and without machine code, and what a changed word changes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from disttrain.backends.llvm.kernels import universal_hash
from disttrain.backends.llvm.kernels.universal_hash import BLOCK, KEY, condensed

pytestmark = pytest.mark.simulated


def by_definition(block: bytes, key: bytes) -> list[int]:
    found = []
    for half in (key[:BLOCK], key[BLOCK:]):
        words = [
            (int.from_bytes(block[i : i + 4], "little") + int.from_bytes(half[i : i + 4], "little"))
            & 0xFFFFFFFF
            for i in range(0, BLOCK, 4)
        ]
        pairs = [(i, i + 8) for i in range(len(words)) if i % 16 < 8]
        found.append(sum(words[i] * words[j] for i, j in pairs) & ((1 << 64) - 1))
    return found


@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("plain", [False, True])
def test_it_is_nh(blocks, plain, monkeypatch):
    if plain:
        monkeypatch.setattr(universal_hash, "_code", lambda: None)
    data, key = os.urandom(blocks * BLOCK), os.urandom(KEY)
    wanted = [by_definition(data[i : i + BLOCK], key) for i in range(0, len(data), BLOCK)]
    assert condensed(data, key).tolist() == wanted


def test_any_buffer_will_do():
    data, key = bytearray(os.urandom(2 * BLOCK + 8)), os.urandom(KEY)
    view = memoryview(data)[8:]
    assert (condensed(view, key) == condensed(bytes(view), key)).all()


def test_every_word_counts():
    data, key = np.zeros(BLOCK, np.uint8), os.urandom(KEY)
    seen = {tuple(condensed(data, key)[0].tolist())}
    for at in range(0, BLOCK, 4):
        data[at] ^= 1
        seen.add(tuple(condensed(data, key)[0].tolist()))
        data[at] ^= 1
    assert len(seen) == BLOCK // 4 + 1
