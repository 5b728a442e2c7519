"""``disttrain diff A B``: which operation of two recorded runs differs first."""

from __future__ import annotations

import argparse
import json

from ..record.diff import MODES, diff
from ..record.reader import read
from ..record.report import as_json, lines


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add = parser.add_argument
    add("first", metavar="A", help="a recording (dtrun --record), or ranks of one: FOLDER:0")
    add("second", metavar="B", nargs="?", help="another; without it: the ranks of A")
    add("--mode", default="", choices=MODES, help="rank by rank, the ranks of one run with each "
        "other, or wholes that are put together from parts (default: as it fits)")  # fmt: skip
    add("--ulp", type=float, default=None, metavar="N", help="values count as equal that are, as "
        "far as is known, at most N units of the last place apart (default: 0; wholes: 4096)",
    )  # fmt: skip
    add("--shift", type=int, default=0, metavar="N", help="add N to the steps of B: it was resumed "
        "after N steps of A")  # fmt: skip
    add("--all", action="store_true", help="of ranks of one run, also what may differ")
    add("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Compare; 1 where they differ."""
    first = read(options.first)
    second = None if options.second is None else read(options.second)
    found = diff(
        first, second, mode=options.mode, ulp=options.ulp, shift=options.shift,
        everything=options.all,
    )  # fmt: skip
    if options.json:
        print(json.dumps(as_json(found), indent=1))
    else:
        print("\n".join(lines(found)))
    return 0 if found.first is None and found.compared else 1
