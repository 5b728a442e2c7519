"""What ``disttrain plan`` says of a strategy is what a rank takes at its peak."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(180)  # on a busy machine
@pytest.mark.parametrize(
    ("ranks", "strategy"),
    [
        (1, "single"),
        (1, "single twice"),
        (2, "ddp"),
        (2, "zero1"),
        (2, "fsdp shard_grad_op"),
        (2, "fsdp recompute"),
        (4, "hsdp"),
        (4, "fsdp x tp"),
    ],
)
def test_a_plan_is_what_a_rank_takes(ranks: int, strategy: str) -> None:
    program = str(ROOT / "tests" / "support" / "cases" / "peak_program.py")
    words = ["--nproc-per-node", str(ranks), "--no-python", sys.executable, program]
    words += strategy.split()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / p) for p in (".", "scripts"))}
    if ranks == 1:  # no shared buffers: all is malloc's, and the holes that it keeps are chance
        env["MALLOC_MMAP_THRESHOLD_"] = str(1 << 18)
    done = subprocess.run(
        [sys.executable, "-m", "disttrain_launcher", *words],
        text=True,
        capture_output=True,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        measured, planned = map(int, line.split()[-2:])
        assert measured == pytest.approx(planned, rel=0.05), (line, measured / planned)
