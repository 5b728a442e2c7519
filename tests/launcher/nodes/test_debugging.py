"""A rank of one node in the debugger: the clocks of all nodes stand, and a failure waits."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from support.dtrun import until
from support.nodes import Nodes
from support.ptys import disttrain

PROGRAM = """
import datetime, os, time
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
open(f'pid-{rank}', 'w').write(str(os.getpid()))
x = dt.ones(3)
group = dist.new_group(timeout=datetime.timedelta(seconds=2))
if rank == 1:
    breakpoint()
    value = x.tolist()
dist.all_reduce(x, group=group)
print("sum", x.tolist(), flush=True)
if rank == 1:
    breakpoint()
    value = 40
dist.barrier()
"""


def test_deadlines_of_all_nodes_stand_still_and_failures_elsewhere_wait(tmp_path: Path) -> None:
    with Nodes(tmp_path, PROGRAM) as job:
        for name in ("a", "b"):
            job.start(name, "--nnodes", "2", "--rdzv-id", "both")
        until(lambda: any("no terminal is free" in job.said(n) for n in "ab"), "a rank to stop")
        (where,) = [n for n in "ab" if "no terminal is free" in job.said(n)]
        (other,) = {"a", "b"} - {where}
        one = disttrain(tmp_path / where, "attach", "both", "1")
        try:
            one.expect(r"\(Pdb rank 1\) $")
            time.sleep(3.5)  # the deadline is 2 s
            one.line("n")
            one.expect("-> value = x.tolist")
            one.line("c")
            assert one.ends() == 0
        finally:
            one.close()
        for name in "ab":
            until(lambda n=name: "[2.0, 2.0, 2.0]" in job.said(n), "the sum")
        assert "is in the debugger at" in job.said(other)
        assert "(there: `disttrain attach both 1`)" in job.said(other)
        until(lambda: job.said(where).count("no terminal is free") == 2, "it to stop again")
        one = disttrain(tmp_path / where, "attach", "both", "1")
        try:
            one.expect(r"\(Pdb rank 1\) $")
            os.kill(int((tmp_path / other / "pid-0").read_text()), signal.SIGKILL)
            time.sleep(1.5)  # much longer than others are given after a failure
            one.line("n")
            one.expect("-> value = 40")
            one.line("p value")
            one.expect(r"\[1.0, 1.0, 1.0\]")
            one.line("c")
            assert one.ends() == 0
        finally:
            one.close()
        assert [job.ended(n) for n in "ab"] == [137, 137], job.everything()
        assert "SIGKILL" in job.said(where)


def test_of_ranks_that_fail_alike_on_two_nodes_one_is_looked_at(tmp_path: Path) -> None:
    program = "import disttrain.distributed as dist\ndist.init_process_group()\n"
    program += "dist.barrier()\nvalue = 40\nraise ValueError('bad')\n"
    with Nodes(tmp_path, program) as job:
        for name in ("a", "b"):
            job.start(name, "--nnodes", "2", "--rdzv-id", "both", "--pdb")
        for name in "ab":
            until(lambda n=name: "no terminal is free" in job.said(n), "both to stop")
        rank = re.search(r"rank (\d) .* no terminal is free", job.said("b"))[1]
        one = disttrain(tmp_path / "b", "attach", "both", rank)
        try:
            one.expect(rf"\(Pdb rank {rank}\) $")
            one.line("p value")
            one.expect("40")
            one.line("q")
            assert one.ends() == 0
        finally:
            one.close()
        assert [job.ended(n) for n in "ab"] == [1, 1], job.everything()
