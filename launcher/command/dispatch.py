"""The command ``dtrun``: parse, set thread counts, then load and run the rest.

Uses the standard library only until the command line is understood, so that ``--help`` and usage
errors answer at once, and because numpy's BLAS reads its thread count when it is loaded.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys

from ..options import forwarding
from ..options.command_line import parse
from ..options.environment import environment

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code of the first failure, or 0."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["submit"]:  # a program of that name is ./submit
        return int(importlib.import_module("disttrain_launcher.submit.command").main(words[1:]))
    starter, value = forwarding.starter(words, environment())
    if starter:
        return int(
            importlib.import_module(f"disttrain_launcher.starters.{starter}").main(words, value)
        )
    options = parse(words)
    if options.place.hint:
        sys.stderr.write(f"dtrun: {options.place.hint}\n")
    if options.nproc_per_node > 1:
        for name in THREAD_VARIABLES:
            os.environ.setdefault(name, "1")
    gc.disable()  # what is loaded stays: looking through it again and again finds nothing
    front = importlib.import_module("disttrain_launcher.command.front")
    gc.freeze()
    gc.enable()
    code = int(front.run(options))
    if not options.dry_run and options.fake is None and options.simulated is None:
        _leave(code)
    return code


def _leave(code: int) -> None:
    """End as Python does, without taking apart what was loaded: no program of a user was here."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
