"""Runs this node's part of a job on several nodes for a program that has asked for it, as ``front``
does for a command line."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

from disttrain import settings

from ..node.outcome import Attempt
from ..nodes import starting
from ..options.command_line import Options
from ..options.rendezvous import Rendezvous
from ..plan.job import Plan
from ..worker.processes import held_back
from .launch import run_in_agent


def run_together(plan: Plan, body: Callable[[int], bytes] | None, r: Rendezvous) -> Attempt:
    """Meet the other nodes, run the ranks of this one, and wait until the others know of the end.
    The outcome has the ranks of this node."""
    options = Options(plan.program, rendezvous=r)
    token = starting.token_for(options)
    given = settings.TOKEN_FILE.text()
    token_file = starting.token_file_for_ranks(options, token)
    plan = dataclasses.replace(plan, token_file=token_file)
    try:
        with held_back(plan.signals):  # before all pipes, whose ends tell of a death
            kept = starting.start_keeper(plan, r, token)
        return run_in_agent(plan, body, kept)
    finally:
        if token_file.startswith("fd:") and token_file != given:
            os.close(int(token_file.removeprefix("fd:")))
