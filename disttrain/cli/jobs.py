"""``disttrain jobs``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time

from ..watch import running
from ..watch.table import clock


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON array instead of text")


def run(options: argparse.Namespace) -> int:
    found = running.jobs()
    if options.json:
        json.dump([dataclasses.asdict(job) for job in found], sys.stdout, indent=1)
        print()
        return 0
    heads = ("JOB", "PID", "UP", "RANKS", "NODE", "PROGRAM")
    rows = [heads] + [
        (j.job, str(j.pid), clock(time.time() - j.since), f"{j.num_ranks} of {j.world_size}",
         f"{j.node} of {j.num_nodes}", j.program)
        for j in found
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    for row in rows if found else ():
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
    if not found:
        print("no job of yours runs here", file=sys.stderr)
    return 0
