"""The front process of ``dtrun``: starts the agent, passes signals on, gives its exit code.

Front and agent are two processes so that whichever is killed, the other cleans up: the agent sees
its pipe end, the front adopts and kills what a dead agent leaves.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import signal
import sys
import tempfile
import traceback
from typing import Any

from disttrain import gpus
from disttrain.errors import LaunchError
from disttrain.lifetime import adopt_orphans

from . import binding, mpi
from .agent import Agent
from .env import worker_env
from .fake import play
from .options import Options
from .outcome import tell
from .plan import Plan, describe, make_plan, reserve_port
from .processes import held_back, kill_descendants
from .report import say
from .worker import COMPAT


def run(options: Options) -> int:
    """Run a job; the exit code for the shell."""
    with reserve_port() as holder:
        plan = make_plan(options, options.master_port or holder.getsockname()[1])
        try:
            return _run(options, placed(plan, options))
        except LaunchError as error:
            say(str(error))
            return 2


def _run(options: Options, plan: Plan) -> int:
    if options.mpi:
        plan = mpi.with_hosts(plan, options.hostfile)
    if options.dry_run:
        print(describe(plan, worker_env))
        return 0
    problem = _cannot_start(plan)
    if problem:
        say(problem)
        return 2
    plan = _with_log_dir(plan)
    if options.fake is not None:
        return play(plan, *options.fake, local_size=options.nproc_per_node)
    if options.simulated is not None:
        run_simulated = importlib.import_module("launcher.simulated.job").run
        return int(run_simulated(plan, options.simulated))
    if plan.mpi_hosts:
        return mpi.run_between_hosts(plan)
    adopt_orphans()
    reader, writer = os.pipe()
    with held_back(plan.signals):
        agent = os.fork()
        if agent == 0:
            _agent(plan, reader, writer)
        os.close(reader)
        _forward(plan.signals, agent)
    code = _wait(agent)
    signal.pthread_sigmask(signal.SIG_BLOCK, plan.signals)  # one more changes nothing of the end
    return code


def placed(plan: Plan, options: Options) -> Plan:
    """The plan with each rank's device and cores, where these are asked for: rank r has the
    visible device r modulo their number, as a script chooses by LOCAL_RANK."""
    if options.binding == "none" and not options.virtual_local_rank:
        return plan
    machine, given = gpus.ask(), os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = gpus.visible(machine.cards, given, each_alone=options.virtual_local_rank)
    ranks: list[gpus.Seen | None] = [
        seen[rank % len(seen)] if seen else None for rank in range(plan.num_ranks)
    ]
    if options.virtual_local_rank:
        if not seen:
            why = gpus.count(machine, given, True)["why"]
            raise LaunchError(f"--virtual-local-rank: no device is visible here ({why})")
        plan = dataclasses.replace(plan, devices=tuple(r.word for r in ranks if r))
    if options.binding == "none":
        return plan
    buses = [r.card.bus if r else None for r in ranks]
    host = binding.read_host([b for b in buses if b], os.sched_getaffinity(0))
    cores = binding.cores_of_ranks(options.binding, host, [b or None for b in buses])
    return dataclasses.replace(plan, cores=tuple(cores))


def _cannot_start(plan: Plan) -> str:
    name = plan.program[0]
    if plan.as_torch:
        try:
            importlib.import_module(COMPAT)  # once, for all ranks
        except ImportError as error:
            return f"--as-torch: {COMPAT} cannot be imported: {error}; is disttrain complete?"
    if plan.module or plan.no_python:
        return ""
    if not os.path.exists(name):
        return f"{name}: no such file; give the path of a script, or -m with a module's name"
    return f"{name}: is a directory; a script is needed" if os.path.isdir(name) else ""


def _with_log_dir(plan: Plan) -> Plan:
    """Outputs that go to files need a directory; make one where none is given."""
    if plan.log_dir is not None or not plan.writes_files:
        return plan
    log_dir = tempfile.mkdtemp(prefix="dtrun_")
    say(f"outputs go to {log_dir}")
    return dataclasses.replace(plan, log_dir=log_dir)


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
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _forward(signals: tuple[int, ...], agent: int) -> None:
    """Pass signals on to the agent."""

    def forward(number: int, frame: Any) -> None:
        try:
            os.kill(agent, number)
        except ProcessLookupError:
            pass

    def suspend(number: int, frame: Any) -> None:
        """Ctrl-Z reaches only this process: agent and ranks are process groups of their own."""
        forward(number, frame)
        os.kill(os.getpid(), signal.SIGSTOP)
        forward(signal.SIGCONT, frame)  # here when `fg` has let us go on

    for number in signals:
        signal.signal(number, forward)
    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
        signal.signal(signal.SIGTSTP, suspend)


def _wait(agent: int) -> int:
    """Wait for the agent's exit code; clean up after an agent that was killed."""
    _, status = os.waitpid(agent, 0)
    kill_descendants(set(), 2.0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        say(f"the agent process was killed by {signal.Signals(number).name}")
        return 128 + number
    return os.WEXITSTATUS(status)
