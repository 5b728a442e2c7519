"""``disttrain pipeline SCHEDULE --ranks 4 --micro 8``: proves what a pipeline schedule does, or
shows what is wrong with it.

A schedule is one of this package's, ``all`` of them, or a file with a line per rank and an action
per field ("2F0", "0SEND_F3"). Sizes may be ranges: ``--ranks 2:4 --micro 1:8`` proves each
combination that the schedule can have.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from ..distributed.pipelining.actions import Plan, plan_from_csv
from ..distributed.pipelining.chart import draw
from ..distributed.pipelining.check import run_on_paper
from ..distributed.pipelining.plans import SCHEDULES, known
from ..distributed.pipelining.proof import prove
from ..errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("schedule", metavar="SCHEDULE", help=f"{', '.join(SCHEDULES)}, all, or a "
                        "CSV file")  # fmt: skip
    parser.add_argument("--ranks", default="4", metavar="A[:B]", help="how many (default: 4)")
    parser.add_argument("--stages", default="", metavar="N", help="in all (default: as many as the "
                        "schedule has; two on each rank where it may have any number)")  # fmt: skip
    parser.add_argument("--micro", default="8", metavar="A[:B]", help="micro-batches (default: 8)")
    parser.add_argument("--memory", type=int, metavar="N",
                        help="activations that a rank may hold at most")  # fmt: skip
    parser.add_argument("--draw", action="store_true", help="show the timeline, too")
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(options: argparse.Namespace) -> int:
    """0 where all is proved, 1 with a counterexample."""
    found = [prove(plan, options.memory) for plan in _plans(options)]
    if not found:
        raise ConfigError("pipeline: no schedule can have these numbers of ranks and micro-batches")
    if options.json:
        print(json.dumps([verdict.as_json() for verdict in found], indent=1))
    else:
        for verdict in found:
            print(verdict)
            if options.draw and verdict.holds:
                print(draw(run_on_paper(verdict.plan)))
    return 0 if all(verdict.holds for verdict in found) else 1


def _plans(options: argparse.Namespace) -> Iterator[Plan]:
    name = options.schedule
    if name.lower() != "all" and name.lower() not in {k.lower() for k in SCHEDULES}:
        if not Path(name).is_file():
            raise ConfigError(
                f"{name!r} is no schedule and no file; one of {', '.join(SCHEDULES)}, all, or a "
                "CSV file is needed"
            )
        yield plan_from_csv(Path(name).read_text(), Path(name).name)
        return
    names = list(SCHEDULES) if name.lower() == "all" else [name]
    several = len(names) > 1 or ":" in options.ranks + options.micro
    for each in names:
        per_rank = {k.lower(): v[0] for k, v in SCHEDULES.items()}[each.lower()] or 2
        for ranks in _range("--ranks", options.ranks):
            stages = _number("--stages", options.stages) if options.stages else per_rank * ranks
            for micro in _range("--micro", options.micro):
                try:
                    yield known(each, ranks, stages, micro)
                except ConfigError:
                    if not several:
                        raise


def _range(flag: str, text: str) -> range:
    first, _, last = text.partition(":")
    start = _number(flag, first)
    return range(start, (_number(flag, last) if last else start) + 1)


def _number(flag: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{flag} {text}: a number from 1 on, or two as 2:8, is needed")
    return int(text)
