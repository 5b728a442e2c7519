"""``dtrun --simulate``: one run of the program, or with ``--explore`` many."""

from __future__ import annotations

import atexit
import importlib
import os

from disttrain.errors import ConfigError
from disttrain.outputs import flush

from ..options.simulation import Flags
from ..plan.job import Plan
from .debugging import Debugging, run_again
from .job import run_job, say

# Loaded where they are asked for.
EXPLORE = "disttrain_launcher.simulated.explore"
ORDERS = "disttrain_launcher.simulated.orders"


def run(plan: Plan, flags: Flags) -> int:
    """``dtrun --simulate``: the exit code for the shell, 2 for flags that do not fit."""
    if not flags.explore and not flags.replay and os.isatty(0):  # somebody may want to go back
        code = run_again(lambda debugging: _run(plan, flags, debugging))
    else:
        code = _run(plan, flags, Debugging())
        atexit._run_exitfuncs()
    flush()
    os._exit(code)  # threads that the program has started, or that never go on, are left


def _run(plan: Plan, flags: Flags, debugging: Debugging) -> int:
    try:
        if flags.explore:
            explore = importlib.import_module(EXPLORE)
            return int(explore.explore(plan, flags))
        if flags.replay:
            return int(importlib.import_module(ORDERS).replay(plan, flags))
        return run_job(plan, flags, debugging)
    except ConfigError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
