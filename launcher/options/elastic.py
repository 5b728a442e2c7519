"""Options of jobs that outlive failures: restarts, ranks that may be missing, time to save."""

from __future__ import annotations

import argparse
from typing import Any

_SHUTDOWN = {"exit": 5.0, "checkpoint": 30.0}  # seconds, where none are given


def add_flags(p: argparse.ArgumentParser) -> None:
    """Add them to the command line."""
    add = p.add_argument
    add(
        "--max-restarts", type=int, default=0, metavar="N", help="restart the job when a rank fails"
    )
    add(
        "--min-ranks",
        type=int,
        default=0,
        metavar="N",
        help="go on with at least N ranks where others fail; the script calls shrink()",
    )
    add(
        "--replace-ranks",
        action="store_true",
        help="start a rank that has failed anew while the others go on, with one of "
        "--max-restarts; the script uses distributed.elastic.run",
    )
    add(
        "--on-term",
        default="exit",
        choices=tuple(_SHUTDOWN),
        help="checkpoint: SIGTERM ends no rank at once; the script asks "
        "elastic.termination_requested(), and saves",
    )
    add(
        "--shutdown-timeout",
        type=float,
        default=None,
        metavar="S",
        help="seconds between asking ranks to end and killing them: 5, or 30 with --on-term "
        "checkpoint (torchrun: 30)",
    )


def options_of(p: argparse.ArgumentParser, given: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``Options`` that these flags give; a usage error where they cannot be."""
    if given.on_term not in _SHUTDOWN:  # from the environment
        p.error(f"--on-term {given.on_term}: {' or '.join(_SHUTDOWN)} is needed")
    shutdown = given.shutdown_timeout
    low = {"--max-restarts": given.max_restarts, "--min-ranks": given.min_ranks}
    for flag, value in {**low, "--shutdown-timeout": shutdown or 0}.items():
        if value < 0:
            p.error(f"{flag} {value:g}: at least 0 is needed")
    if given.replace_ranks and given.max_restarts < 1:
        p.error("--replace-ranks: it uses restarts, and there are none; add --max-restarts N")
    if given.replace_ranks and (given.simulate or given.backend == "mpi"):
        p.error("--replace-ranks: ranks are started anew among the processes of one machine")
    several = given.nnodes not in ("1", "1:1") or given.spares
    return {
        "max_restarts": given.max_restarts,
        "min_ranks": given.min_ranks or int(given.replace_ranks and not several),
        "replace_ranks": given.replace_ranks,
        "on_term": given.on_term,
        "shutdown_timeout": _SHUTDOWN[given.on_term] if shutdown is None else shutdown,
    }
