"""Flags of where outputs and events go: torchrun's, with its meanings."""

from __future__ import annotations

import argparse
import re
from typing import Any

EVENT_LOGS = ("null", "console")


def add_flags(p: argparse.ArgumentParser) -> None:
    add = p.add_argument
    add("--log-dir", default=None, metavar="DIR",
        help="where outputs, report.json, the black box and the trace go")  # fmt: skip
    add("--blackbox", action="store_true",
        help="gather the black boxes of all nodes also where nothing has failed")  # fmt: skip
    add("-r", "--redirects", default="0", help="outputs to files: 0 none, 1 out, 2 err, 3 both")
    add("-t", "--tee", default="0", help="outputs to files and the console: as --redirects")
    add("--local-ranks-filter", default="", help="ranks whose output is shown, as 0,2")
    for name in ("stdout", "stderr"):
        add(f"--duplicate-{name}-filters", default="", metavar="A,B",
            help=f"lines of {name} with any of these also go to filtered_{name}.log")  # fmt: skip
    add("--event-log-handler", default="null", choices=EVENT_LOGS,
        help="console: say as JSON how each rank has ended")  # fmt: skip
    add("--logs-specs", default="default", choices=("default",), help="accepted")


def options_of(p: argparse.ArgumentParser, given: argparse.Namespace) -> dict[str, Any]:
    """What they say, checked; the fields of ``Options``."""
    for name in ("event_log_handler", "logs_specs"):  # from a variable
        value, flag = getattr(given, name), "--" + name.replace("_", "-")
        known = EVENT_LOGS if name == "event_log_handler" else ("default",)
        if value not in known:
            p.error(f"{flag} {value}: one of {', '.join(known)} is needed")
    stdout, stderr = given.duplicate_stdout_filters, given.duplicate_stderr_filters
    return {
        "log_dir": given.log_dir,
        "blackbox": given.blackbox,
        "redirects": _streams(p, "--redirects", given.redirects),
        "tee": _streams(p, "--tee", given.tee),
        "local_ranks_filter": _filter(p, given.local_ranks_filter),
        "duplicates": (_words(stdout), _words(stderr)),
        "event_log": given.event_log_handler,
    }


def _words(text: str) -> tuple[str, ...]:
    """Words between commas; a doubled comma is one of a word's own."""
    words = re.split(r"(?<!,),(?!,)", text)
    return tuple(word.replace(",,", ",") for word in words if word)


def _streams(p: argparse.ArgumentParser, flag: str, text: str) -> str:
    for part in text.split(","):
        rank, colon, value = part.rpartition(":")
        if value not in ("0", "1", "2", "3") or (colon and not rank.isdigit()):
            p.error(f"{flag} {text}: 0, 1, 2 or 3, or rank:value pairs such as 0:1,1:2 are needed")
    return text


def streams_of(text: str, rank: int) -> int:
    """The value (0..3) that a ``--redirects`` or ``--tee`` text gives ``rank``."""
    value = 0
    for part in text.split(","):
        who, colon, number = part.rpartition(":")
        if not colon or int(who) == rank:
            value = int(number)
    return value


def _filter(p: argparse.ArgumentParser, text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    if not all(part.strip().isdigit() for part in text.split(",")):
        p.error(f"--local-ranks-filter {text}: ranks such as 0,2 are needed")
    return tuple(int(part) for part in text.split(","))
