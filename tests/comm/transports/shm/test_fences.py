"""Flags on machines that do not keep the order of stores, forced here."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from disttrain.comm.transports.shm import fences
from disttrain.errors import CollectiveMismatch, CommError
from support.groups import run_group


def test_fenced_words_are_words():
    buffer = mmap.mmap(-1, 4096)
    address = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    words = fences.FencedWords(memoryview(buffer).cast("Q"), address)
    words[3], words[511] = (1 << 64) - 1, 7
    assert (words[3], words[511], len(words)) == ((1 << 64) - 1, 7, 512)
    assert words[2:5].tolist() == [0, (1 << 64) - 1, 0]
    assert buffer[24:32] == b"\xff" * 8
    for wrong in (-1, 512):
        with pytest.raises(IndexError):
            words[wrong]


def test_ordered_machines_have_plain_words():
    words = fences.words_of(mmap.mmap(-1, 4096), 0)
    assert isinstance(words, memoryview) is fences.is_ordered()


@pytest.mark.parametrize("n", [2, 3])
def test_ranks_meet_over_fenced_words(n, monkeypatch):
    monkeypatch.setattr(fences, "is_ordered", lambda: False)

    def body(group):
        assert isinstance(group.transport.hub.words, fences.FencedWords)
        seen = []
        for count in (5, 60_000):
            x = np.full(count, float(group.rank + 1))
            group.all_reduce(x)
            work = group.all_reduce(x, async_op=True)
            work.wait()
            seen.append(x[[0, -1]].tolist())
        got = np.zeros(9000)
        sent = group.isend(np.full(9000, float(group.rank)), (group.rank + 1) % n)
        group.recv(got, (group.rank - 1) % n)
        sent.wait()
        with pytest.raises(CollectiveMismatch, match="all_reduce"):
            group.all_reduce(x[: 1 + group.rank])
        group.split(0).barrier()
        return [*seen, got[-1] == (group.rank - 1) % n]

    total = n * n * (n + 1) / 2
    assert run_group(n, body) == [[[total] * 2, [total] * 2, True]] * n


def test_what_is_needed_where_nothing_can_make_them(monkeypatch):
    def missing(*args):
        raise ImportError("no llvmlite")

    monkeypatch.setattr(fences, "is_ordered", lambda: False)
    monkeypatch.setattr(fences, "run_ir", missing)
    with pytest.raises(CommError, match="needs fences"):
        fences.words_of(mmap.mmap(-1, 4096), 0)
