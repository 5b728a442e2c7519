"""Memory that all ranks of a group see: its turns, and when it is free again."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from disttrain.comm.group.blocks import Blocks
from disttrain.comm.group.group import ProcessGroup
from support.groups import run_group


def test_every_rank_sees_what_all_have_written() -> None:
    def body(group: ProcessGroup) -> list[list[int]]:
        shared = Blocks(group, "test", (3,)).share(64 * group.size)
        rows, seen = shared.bytes.reshape(group.size, 64), []
        for turn in range(3):
            rows[group.rank] = 10 * turn + group.rank
            shared.open()
            seen.append(rows[:, 0].tolist())
            shared.close()
            shared.wait_closed()
        return seen

    want = [[10 * turn + r for r in range(3)] for turn in range(3)]
    assert run_group(3, body) == [want] * 3


def test_it_is_free_when_all_have_let_go() -> None:
    def body(group: ProcessGroup) -> list[bool]:
        arena = group.transport.hub.arena
        blocks = Blocks(group, "test", (0,))
        before = arena.used_bytes()
        shared = blocks.share(1 << 20)
        view = shared.bytes[5:9].view(np.uint32)
        del shared
        gc.collect()
        group.barrier()
        held = arena.used_bytes() > before
        group.barrier()
        del view
        gc.collect()
        group.barrier()
        return [held, arena.used_bytes() > before]

    assert run_group(2, body) == [[True, False], [False, False]]


def test_ranks_that_ask_for_different_sizes_are_told() -> None:
    def body(group: ProcessGroup) -> str:
        with pytest.raises(Exception, match="do not fit") as error:
            Blocks(group, "test", (0,)).share(64 + group.rank)
        return type(error.value).__name__

    assert run_group(2, body) == ["CollectiveMismatch"] * 2
