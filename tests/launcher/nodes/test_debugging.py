"""A rank of one node in the debugger: the clocks of all nodes stand."""

from __future__ import annotations

import time
from pathlib import Path

from support.nodes import Nodes
from support.ptys import disttrain

PROGRAM = """
import datetime, time
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group(timeout=datetime.timedelta(seconds=4))
rank = dist.get_rank()
x = dt.ones(3)
dist.all_reduce(x)
if rank == 1:
    breakpoint()
    value = x.tolist()
dist.all_reduce(x)
print("sum", x.tolist())
"""


def test_deadlines_of_all_nodes_stand_still(tmp_path: Path) -> None:
    with Nodes(tmp_path, PROGRAM) as job:
        for name in ("a", "b"):
            job.start(name, "--nnodes", "2", "--rdzv-id", "both")
        one = None
        until = time.monotonic() + 30
        while not (where := [n for n in ("a", "b") if "no terminal is free" in job.said(n)]):
            assert time.monotonic() < until, job.everything()
            time.sleep(0.05)
        one = disttrain(tmp_path / where[0], "attach", "both", "1")
        try:
            one.expect(r"\(Pdb rank 1\) $")
            time.sleep(7)  # the deadline is 4 s
            one.line("n")
            one.expect("-> value = x.tolist")
            one.line("c")
            assert one.ends() == 0
        finally:
            one.close()
        assert (job.ended("a"), job.ended("b")) == (0, 0), job.everything()
        (other,) = {"a", "b"} - set(where)
        assert "is in the debugger at" in job.said(other)
        assert "(there: `disttrain attach both 1`)" in job.said(other)
        assert "[4.0, 4.0, 4.0]" in job.said("a")
