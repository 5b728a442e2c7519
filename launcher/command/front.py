"""The front process of ``dtrun``: starts the agent, passes signals on, gives its exit code.

Front, warden and agent are three processes so that whichever two are killed, even in the same
instant, the third one cleans up: the agent sees the front's pipe end, the warden adopts and kills
what a dead agent leaves, the front what a dead warden does. Of all three, only what has detached
itself from its rank stays (see ``lifetime.Leash``).
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import select
import signal
import socket
import time
import traceback
from typing import Any

from disttrain.errors import ConfigError, DisttrainError, LaunchError
from disttrain.lifetime import adopt_orphans, end_of, rename

from ..node.agent import Agent
from ..node.outcome import tell
from ..node.report import say
from ..options import limits
from ..options.command_line import Options
from ..plan.job import Plan, describe, make_plan, reserve_port
from ..worker.environment import worker_env
from ..worker.logs import FULL
from ..worker.processes import held_back, kill_descendants
from ..worker.program import has_main, source
from . import preloads
from .events import tell_events
from .fake import play


def run(options: Options) -> int:
    """Run a job; the exit code for the shell."""
    several = options.rendezvous is not None
    with reserve_port("" if several else "127.0.0.1") as holder:
        free = holder.getsockname()[1]
        port = free if several else options.master_port or free
        face = options.face and preloads.FACES + options.face
        names = preloads.of(options.max_restarts, _text(options))
        observers = preloads.observers(options.record, options.sanitize)
        plan = make_plan(options, port, face, names, observers)
        try:
            return _run(options, _placed(plan, options))
        except (LaunchError, ConfigError) as error:
            say(str(error))
            return 2
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def _run(options: Options, plan: Plan) -> int:
    if options.mpi:
        plan = _load("disttrain_launcher.node.mpi").with_hosts(plan, options.hostfile)
    if options.dry_run:
        if options.place.cluster != "local":
            print(options.place.describe())
        print(describe(plan, worker_env))
        return 0
    problem = _cannot_start(plan)
    if problem:
        say(problem)
        return 2
    plan = _with_log_dir(plan)
    if options.fake is not None or options.simulated is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # for the program, which runs here
    if options.fake is not None:
        return play(plan, *options.fake, local_size=options.nproc_per_node)
    if options.simulated is not None:
        return int(_load("disttrain_launcher.simulated.command").run(plan, options.simulated))
    if plan.mpi_hosts:
        return int(_load("disttrain_launcher.node.mpi").run_between_hosts(plan))
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: it is to outlive its terminal
        others = tuple(n for n in plan.signals if n != signal.SIGHUP)
        plan = dataclasses.replace(plan, signals=others)
    adopt_orphans()
    client, seat = _terminal()
    kept: Any = None
    token = None
    if options.rendezvous is not None:
        nodes = _load("disttrain_launcher.nodes.starting")
        token = nodes.token_for(options)
        plan = dataclasses.replace(plan, token_file=nodes.token_file_for_ranks(options, token))
    with held_back(plan.signals):
        if options.rendezvous is not None:  # before the pipes, whose ends tell of a death
            kept = nodes.start_keeper(plan, options.rendezvous, token)
        reader, writer = os.pipe()
        pid_reader, pid_writer = os.pipe()
        warden = os.fork()
        if warden == 0:
            os.close(writer)
            os.close(pid_reader)
            if client is not None:
                client.close()
            _warden(plan, reader, pid_writer, kept, seat)
        for fd in (reader, pid_writer):
            os.close(fd)
        if kept is not None:
            kept.sock.close()
        if seat is not None:
            seat.close()
        told = os.read(pid_reader, 16)
        os.close(pid_reader)
        _forward(plan.signals, int(told or warden))
    if client is not None:
        _sit(client, warden)
    code = _wait(warden, plan.signals, kept)
    signal.pthread_sigmask(signal.SIG_BLOCK, plan.signals)  # one more changes nothing of the end
    return code


def _terminal() -> tuple[Any, socket.socket | None]:
    """Who sits at our terminal for ranks that stop in the debugger, and the agent's way there."""
    if not os.isatty(0):
        return None, None
    fd = _load("disttrain.debugger.terminal").usable(0)
    if fd < 0:
        return None, None
    wire = _load("disttrain.debugger.wire")
    ours, its = wire.pair()
    client = _load("disttrain.debugger.client").Client(wire.Wire(ours), fd)
    client.ask()
    return client, its


def _sit(client: Any, warden: int) -> None:
    """Be there for ranks that stop, until the job has ended."""
    end = end_of(warden)
    try:
        while True:
            ready, _, _ = select.select([end, *client.fds], [], [])
            if end in ready:
                return
            client.handle(ready)
    finally:
        client.close()
        os.close(end)


def _load(name: str) -> Any:
    """A part of the launcher that few jobs need."""
    return importlib.import_module(name)


def _placed(plan: Plan, options: Options) -> Plan:
    """The plan with each rank's device and cores, where these are asked for."""
    if options.binding == "none" and not options.virtual_local_rank:
        return plan
    placed: Plan = _load("disttrain_launcher.command.placement").placed(plan, options)
    return placed


def _text(options: Options) -> str | None:
    return None if options.module else source(options.program[0])


def _cannot_start(plan: Plan) -> str:
    name = plan.program[0]
    if plan.face:
        try:
            importlib.import_module(plan.face)  # once, for all ranks
        except ImportError as error:
            flag = plan.as_face[0]
            return f"{flag}: {plan.face} cannot be imported: {error}; is disttrain complete?"
    if plan.module or plan.no_python:
        return ""
    if not os.path.exists(name):
        return f"{name}: no such file; give the path of a script, or -m with a module's name"
    if not os.path.isdir(name) or has_main(name):
        return ""
    return f"{name}: is a directory without __main__.py; a script is needed"


def _with_log_dir(plan: Plan) -> Plan:
    """Outputs that go to files need a directory; make one where none is given."""
    if plan.log_dir is not None:
        _check_log_dir(plan.log_dir)
        return plan
    if not plan.writes_files:
        return plan
    import tempfile  # which few jobs need, and takes milliseconds

    try:
        log_dir = tempfile.mkdtemp(prefix="dtrun_")
    except OSError as error:
        raise LaunchError(
            f"--redirects, --tee: no folder for outputs: {error}; give --log-dir"
        ) from None
    say(f"outputs go to {log_dir}")
    return dataclasses.replace(plan, log_dir=log_dir)


def _check_log_dir(path: str) -> None:
    """Refuse before anything runs what a job could only find at its end. A disk that is full now
    may be less so then."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        if error.errno not in FULL:
            raise LaunchError(f"--log-dir {path}: {error.strerror}; a folder is needed") from None
    else:
        if not os.access(path, os.W_OK | os.X_OK):
            raise LaunchError(f"--log-dir {path}: a folder that may be written to is needed")


def _warden(plan: Plan, reader: int, pid_writer: int, kept: Any, seat: Any) -> None:
    """Start the agent, and wait for its end: whatever is left then, however it has detached itself,
    has this process for its parent."""
    code = 1
    try:
        os.setpgid(0, 0)
        rename("dtrun-warden")
        adopt_orphans()
        agent = os.fork()
        if agent == 0:
            os.close(pid_writer)
            _agent(plan, reader, kept, seat)
        os.write(pid_writer, b"%d" % agent)
        for fd in (reader, pid_writer):
            os.close(fd)
        if kept is not None:
            kept.sock.close()
        if seat is not None:
            seat.close()
        for number in plan.signals:  # the front tells the agent of them
            signal.signal(number, signal.SIG_IGN)
        code = _wait(agent)
    except OSError as error:
        say(f"cannot start {plan.num_ranks} ranks: {error}: {limits.advice(error, plan.num_ranks)}")
    finally:
        os._exit(code)


def _agent(plan: Plan, reader: int, kept: Any, seat: Any) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        rename("dtrun")
        began = time.monotonic()
        orders = None if kept is None else kept.orders()
        attempt = Agent(plan, None, reader, orders, seat).run()
        tell(attempt, plan)
        tell_events(attempt, plan, time.monotonic() - began)
        code = attempt.code
    except DisttrainError as error:
        say(str(error))
    except OSError as error:
        say(f"cannot start {plan.num_ranks} ranks: {error}: {limits.advice(error, plan.num_ranks)}")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _forward(signals: tuple[int, ...], agent: int) -> None:
    """Pass signals on to the agent."""

    def forward(number: int, frame: object) -> None:
        try:
            os.kill(agent, number)
        except ProcessLookupError:
            pass

    def suspend(number: int, frame: object) -> None:
        """Ctrl-Z reaches only this process: agent and ranks are process groups of their own."""
        forward(number, frame)
        os.kill(os.getpid(), signal.SIGSTOP)
        forward(signal.SIGCONT, frame)  # here when `fg` has let us go on

    for number in signals:
        signal.signal(number, forward)
    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
        signal.signal(signal.SIGTSTP, suspend)


def _wait(process: int, signals: tuple[int, ...] = (), kept: Any = None) -> int:
    """Wait for the exit code of the agent or the warden; clean up after one that was killed. A
    keeper has something to tell the others then; one more signal, and nobody waits for that."""
    _, status = os.waitpid(process, 0)
    if kept is not None:
        for number in signals:
            signal.signal(number, lambda *_: kept.kill())
        kill_descendants({kept.pid}, 2.0)
        kept.wait()
    kill_descendants(set(), 2.0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        say(f"a process of the launcher was killed by {signal.Signals(number).name}")
        return 128 + number
    return os.WEXITSTATUS(status)
