"""The front process of ``dtrun``: starts the agent, passes signals on, gives its exit code.

Front and agent are two processes so that whichever is killed, the other cleans up: the agent sees
its pipe end, the front adopts and kills what a dead agent leaves.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from disttrain.errors import LaunchError

from .agent import Agent, say, tell
from .env import worker_env
from .options import Options
from .plan import Plan, describe, make_plan
from .processes import adopt_orphans, kill_descendants


def run(options: Options) -> int:
    """Run a job; the exit code for the shell."""
    plan = make_plan(options)
    if options.dry_run:
        print(describe(plan, worker_env))
        return 0
    problem = _cannot_start(plan)
    if problem:
        say(problem)
        return 2
    adopt_orphans()
    reader, writer = os.pipe()
    agent = os.fork()
    if agent == 0:
        _agent(plan, reader, writer)
    os.close(reader)
    return _wait(agent, plan)


def _cannot_start(plan: Plan) -> str:
    name = plan.program[0]
    if plan.module or plan.no_python:
        return ""
    if not os.path.exists(name):
        return f"{name}: no such file; give the path of a script, or -m with a module's name"
    return f"{name}: is a directory; a script is needed" if os.path.isdir(name) else ""


def _agent(plan: Plan, reader: int, writer: int) -> None:
    code = 1
    try:
        os.close(writer)
        os.setpgid(0, 0)
        attempt = Agent(plan, None, reader).run()
        tell(attempt, plan)
        code = attempt.code
    except LaunchError as error:
        say(str(error))
    except OSError as error:
        say(f"cannot start {plan.num_ranks} ranks: {error}; see ulimit -u and pids.max")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(agent: int, plan: Plan) -> int:
    def forward(number: int, frame: Any) -> None:
        try:
            os.kill(agent, number)
        except ProcessLookupError:
            pass

    for number in plan.signals:
        signal.signal(number, forward)
    while True:
        try:
            _, status = os.waitpid(agent, 0)
            break
        except InterruptedError:
            continue
    kill_descendants(set(), 2.0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        say(f"the agent process was killed by {signal.Signals(number).name}")
        return 128 + number
    return os.WEXITSTATUS(status)
