"""``dtrun --simulate``: one run of the program, or with ``--explore`` many."""

from __future__ import annotations

import atexit
import importlib
import os

from disttrain.errors import ConfigError
from disttrain.outputs import flush

from ..options.simulation import Flags
from ..plan.job import Plan
from .job import run_job, say

# Loaded where they are asked for.
EXPLORE = "disttrain_launcher.simulated.explore"
ORDERS = "disttrain_launcher.simulated.orders"


def run(plan: Plan, flags: Flags) -> int:
    """``dtrun --simulate``: the exit code for the shell, 2 for flags that do not fit."""
    try:
        if flags.explore:
            explore = importlib.import_module(EXPLORE)
            code = explore.explore(plan, flags)
        elif flags.replay:
            code = importlib.import_module(ORDERS).replay(plan, flags)
        else:
            code = run_job(plan, flags)
    except ConfigError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        code = 130
    atexit._run_exitfuncs()
    flush()
    os._exit(code)  # threads that the program has started, or that never go on, are left
