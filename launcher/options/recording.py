"""Flags of what ranks record (docs/debugging.md)."""

from __future__ import annotations

import argparse
import os
from typing import Any

LEVELS = ("collectives", "modules", "ops")


def add_flags(p: argparse.ArgumentParser) -> None:
    """Add them to the command line."""
    add = p.add_argument
    add("--record", default="", metavar="DIR",
        help="record what ranks compute into DIR, for `disttrain diff`")  # fmt: skip
    add("--record-level", default="", choices=("", *LEVELS), metavar="LEVEL",
        help="what of it: collectives, modules or ops (the default)")  # fmt: skip
    add("--record-steps", default="", metavar="A:B", help="only in steps from A to before B")
    add("--record-ranks", default="", metavar="R,R", help="only these ranks")
    add("--record-payloads", action="store_true", help="the bytes that ranks receive, too")


def options_of(p: argparse.ArgumentParser, given: argparse.Namespace) -> dict[str, Any]:
    """What they say, checked; the field of ``Options``."""
    said = (given.record_level, given.record_steps, given.record_ranks, given.record_payloads)
    if not given.record:
        if any(said):
            p.error("--record-level, --record-steps ...: where to? Add --record DIR")
        return {}
    if given.no_python:
        p.error("--record: the program must be Python; ranks of an executable are not seen")
    if given.record_level not in ("", *LEVELS):  # from a variable
        p.error(f"--record-level {given.record_level}: one of {', '.join(LEVELS)} is needed")
    first, colon, end = given.record_steps.partition(":")
    numbers = bool(colon) and first.isdigit() and end.isdigit() and int(first) < int(end)
    if given.record_steps and not numbers:
        p.error(f"--record-steps {given.record_steps}: A:B with A < B is needed, as 100:110")
    ranks = given.record_ranks
    if ranks and not all(part.strip().isdigit() for part in ranks.split(",")):
        p.error(f"--record-ranks {ranks}: ranks such as 0,2 are needed")
    payloads = "1" if given.record_payloads else ""
    folder = os.path.abspath(given.record)
    return {"record": (folder, given.record_level, given.record_steps, ranks, payloads)}
