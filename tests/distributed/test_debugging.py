"""``distributed.breakpoint``: one rank stops, the others that call it wait."""

from __future__ import annotations

import re

import pytest

import disttrain.distributed as dist
from disttrain import context
from disttrain.debugger import session
from disttrain.errors import ConfigError
from support.ptys import started

ALL = """
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
for i in range(3):
    dist.breakpoint(1, skip=1)
    if rank == 0:
        open(f"passed{i}", "w").close()
dist.breakpoint(rank=1) if rank == 1 else None
dist.barrier()
print("met")
"""
AS_TORCH = ALL.replace("import disttrain as dt, disttrain.distributed", "import torch.distributed")


@pytest.mark.parametrize(("script", "flags"), [(ALL, ()), (AS_TORCH, ("--as-torch",))])
def test_the_others_wait_and_none_need_call_it(tmp_path, script, flags):
    job = started(tmp_path, script, "--nproc-per-node", "2", *flags)
    try:
        for i in (1, 2):
            job.expect(r"-> dist.breakpoint\(1, skip=1\)\n\(Pdb rank 1\) $")
            job.line("p i")
            job.expect(rf"{i}\n\(Pdb rank 1\) $")
            assert not (tmp_path / f"passed{i}").exists()
            job.line("c")
        job.expect(r"-> dist.breakpoint\(rank=1\)[^\n]*\n\(Pdb rank 1\) $")
        job.line("c")
        assert job.ends() == 0
        assert len(re.findall("met", job.said)) == 2
    finally:
        job.close()


class Seat:
    """A terminal at which somebody only looks."""

    stays = True
    taken = 0

    def take(self, kind: str, where: str, seconds: float) -> None:
        self.taken += 1
        raise KeyboardInterrupt

    def leave(self, how: str) -> None:
        raise AssertionError


def test_without_a_group_or_a_launcher():
    seat = Seat()
    with context.attach(context.Rank()) as me:
        me.slots[session.TERMINAL_SLOT] = lambda: seat
        for _ in range(3):
            dist.breakpoint(skip=3)
        assert seat.taken == 0
        with pytest.raises(KeyboardInterrupt):
            dist.breakpoint()
        assert seat.taken == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"rank": 1}, "the job has ranks 0 to 0"),
        ({"rank": -1}, "rank=-1 given; a number from 0 on"),
        ({"rank": "0"}, "rank='0' given"),
        ({"rank": True}, "rank=True given"),
        ({"skip": -1}, "skip=-1 given"),
        ({"skip": 1.0}, "skip=1.0 given"),
        ({"timeout_s": 0}, "above 0, and finite"),
        ({"timeout_s": float("inf")}, "above 0, and finite"),
        ({"timeout_s": "long"}, "seconds are needed"),
    ],
)
def test_wrong_inputs(words, text):
    with context.attach(context.Rank()), pytest.raises(ConfigError, match=re.escape(text)):
        dist.breakpoint(**words)
