"""Flags of what ranks look for in themselves (docs/sanitizer.md)."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

_NAMES = re.compile(r"[a-z]+(-[a-z]+)*(,[a-z]+(-[a-z]+)*)*|1")


def add_flags(p: argparse.ArgumentParser) -> None:
    """Add them to the command line."""
    p.add_argument(
        "--sanitize", nargs="?", const="1", default="", metavar="KINDS",
        help="look for silent bugs of training in every rank; --sanitize=KINDS: only these",
    )  # fmt: skip
    p.add_argument(
        "--sanitize-report", default="", metavar="FILE",
        help="add a line of JSON to FILE for each finding",
    )  # fmt: skip


def options_of(p: argparse.ArgumentParser, given: argparse.Namespace) -> dict[str, Any]:
    """What they say, checked; the field of ``Options``."""
    if not given.sanitize:
        if given.sanitize_report:
            p.error("--sanitize-report: of what? Add --sanitize")
        return {}
    if given.no_python:
        p.error("--sanitize: the program must be Python; ranks of an executable are not seen")
    if not _NAMES.fullmatch(given.sanitize):
        p.error(
            f"--sanitize {given.sanitize}: kinds such as error,dead-activations are needed; where "
            "all are meant and the program comes next, write --sanitize=1"
        )
    report = os.path.abspath(given.sanitize_report) if given.sanitize_report else ""
    return {"sanitize": (given.sanitize, report)}
