"""Stands in for ``gpuproof.run``: parts that hold, fail, crash, hang and get stuck, by name."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from gpuproof.journal import Job, Journal, Skip, Stuck
from gpuproof.run import STUCK


def _fail() -> None:
    raise ValueError("two\nlines")


def _skip() -> None:
    raise Skip("no such thing here")


def _hang() -> None:
    os.system("sleep 60 &")
    time.sleep(60)


def _stuck() -> None:
    raise RuntimeError("illegal address")


WHAT = {
    "good": ["fine"],
    "mixed": ["fine", "fail", "skip", "number"],
    "crash": ["fine", "abort", "fail", "fine2"],
    "hang": ["fine", "hang", "fine2"],
    "stuck": ["stuck", "fine"],
    "early": [],
    "many": [f"case{k}" for k in range(5)],
}


def main() -> int:
    name, path, platform, shard, shards, *after = sys.argv[1:]
    if name == "early":
        sys.exit("no module of that name")
    job = Job(Journal(Path(path)), platform, frozenset(after), int(shard), int(shards))
    acts = {
        "fail": _fail, "skip": _skip, "abort": os.abort, "hang": _hang, "stuck": _stuck,
        "number": lambda: job.journal.number("speed", 5.0, "TFLOP/s", beside={"PyTorch": 4.0}),
    }  # fmt: skip
    if name == "stuck":
        job.healthy = _stuck
    try:
        for case in WHAT[name]:
            job.case(case, acts.get(case, lambda: "well"))
    except Stuck as stuck:
        job.journal.note(str(stuck))
        return STUCK
    job.journal.line("end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
