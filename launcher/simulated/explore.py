"""``dtrun --simulate N --explore K``: try schedules and faults, show the simplest that fails.

Every trial runs in a process that is forked from this one, so that none sees what another has left,
and one that hangs outside the simulation (in a lock of its own, say) is ended. Which trials there
are, and what counts as a failure, is ``disttrain.comm.transports.sim.explore``'s.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pickle
import select
import shlex
import signal
import sys
import time
import traceback

from disttrain.comm.transports.sim.explore import Trial, Verdict, shrink, trials, unexpected
from disttrain.comm.transports.sim.faults import DELAY, DROP, KILL

from ..options.simulation import Flags, words_of
from ..plan.job import Plan
from .job import Job, make_cluster, outcome_of, say, tell_failure

_PATIENCE = 120.0  # real seconds that a trial may take
_HUNG = Verdict(1, ((-1, "Hung", f"it has not ended within {_PATIENCE:g} s"),))
NO_TIME = "0"  # what programs compute, where nothing is said: all that can happen, may


def explore(plan: Plan, flags: Flags) -> int:
    """Try ``flags.explore`` trials; 0 where none fails, else 1 after telling the simplest one."""
    make_cluster(plan.num_ranks, flags, NO_TIME)  # refuses flags that do not fit
    for name in (*plan.preloads, *filter(None, [plan.face])):
        importlib.import_module(name)  # once, for all trials
    given = flags
    flags = dataclasses.replace(flags, explore=0, timeline="")
    plain = Trial(plan.num_ranks, flags.seed)
    start = time.monotonic()
    verdict = run_trial(plan, flags, plain)
    if unexpected(_whole(plan, flags, plain), verdict) is not None:
        say("it fails without any fault, in the first schedule")
        return _tell(plan, flags, plain, verdict)
    tried = 1
    for trial in trials(given.explore - 1, plan.num_ranks, flags.seed, dict(verdict.counts)):
        tried += 1
        found = run_trial(plan, flags, trial)
        wrong = unexpected(_whole(plan, flags, trial), found)
        if wrong is not None:
            say(f"trial {tried} of {given.explore} fails: rank {wrong[0]}: {_line(wrong[2])}")
            return _tell(plan, flags, *_simplest(plan, flags, trial, found))
    say(f"{tried} schedules and faults tried in {time.monotonic() - start:.1f} s: none fails")
    return 0


def _whole(plan: Plan, flags: Flags, trial: Trial) -> Trial:
    """The trial with the faults that the command line asks for, too."""
    cluster = make_cluster(trial.num_ranks, _fit(flags, trial.num_ranks), NO_TIME)
    return dataclasses.replace(trial, faults=(*cluster.faults, *trial.faults))


def _fit(flags: Flags, num_ranks: int) -> Flags:
    """The flags for fewer ranks."""
    return dataclasses.replace(flags, hosts=min(flags.hosts, num_ranks))


def _simplest(plan: Plan, flags: Flags, trial: Trial, verdict: Verdict) -> tuple[Trial, Verdict]:
    """Shrink to what fails in the same way: with an error of the same type."""
    wrong = unexpected(_whole(plan, flags, trial), verdict)
    assert wrong is not None
    seen = {trial: verdict}
    pinned = flags.kill + flags.drop + flags.delay + flags.straggler

    def fails(simpler: Trial) -> bool:
        if pinned and simpler.num_ranks < trial.num_ranks:
            return False  # ranks that the command line names
        seen[simpler] = found = run_trial(plan, flags, simpler)
        other = unexpected(_whole(plan, flags, simpler), found)
        return other is not None and other[1] == wrong[1]

    simplest = shrink(trial, fails, fewest_ranks=2)
    return simplest, seen[simplest]


def _tell(plan: Plan, flags: Flags, trial: Trial, verdict: Verdict) -> int:
    """Show the run as it happens, and the command that replays it."""
    run_trial(plan, flags, trial, shown=True)
    faults = "; ".join(f"--{f.kind} {f}" for f in trial.faults) or "none"
    say(f"the simplest failing trial: {trial.num_ranks} ranks, seed {trial.seed}, faults: {faults}")
    say(f"replay it with: {replay(plan, flags, trial)}")
    return verdict.code or 1


def replay(plan: Plan, flags: Flags, trial: Trial) -> str:
    """The command line that runs ``trial`` again."""
    words = ["dtrun", "--simulate", str(trial.num_ranks)]
    words += ["--as-torch"] if plan.face else []
    words += words_of(_flags_of(flags, trial))
    words += ["-m"] if plan.module else []
    return shlex.join([*words, *plan.program])


def _flags_of(flags: Flags, trial: Trial) -> Flags:
    named = {
        kind: getattr(flags, kind) + tuple(str(f) for f in trial.faults if f.kind == kind)
        for kind in (KILL, DROP, DELAY)
    }
    fit, compute = _fit(flags, trial.num_ranks), flags.compute or NO_TIME
    return dataclasses.replace(fit, seed=trial.seed, compute=compute, **named)


# --- running one -----------------------------------------------------------------------------


def run_trial(plan: Plan, flags: Flags, trial: Trial, shown: bool = False) -> Verdict:
    """What comes of ``trial``, which runs in a process of its own. ``shown``: with its outputs."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run(plan, flags, trial, shown, writer)
    os.close(writer)
    try:
        data = _read(reader, time.monotonic() + _PATIENCE)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if data is None:
        return _HUNG
    if not data:
        return Verdict(1, ((-1, "Died", f"its process ended with status {status}"),))
    return pickle.loads(data)  # from our own forked child


def _read(fd: int, deadline: float) -> bytes | None:
    """What comes until the end; None where that does not come in time."""
    data = bytearray()
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(fd, 1 << 16)
        if not part:
            return bytes(data)
        data += part
    return None


def _run(plan: Plan, flags: Flags, trial: Trial, shown: bool, writer: int) -> None:
    """In the forked process: run, send what came of it, end."""
    code = 1
    try:
        if not shown:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        plan = dataclasses.replace(plan, num_ranks=trial.num_ranks)
        cluster = make_cluster(trial.num_ranks, _flags_of(flags, trial), NO_TIME)
        job = Job(plan, cluster, trial.seed)
        sys.breakpointhook = lambda *args, **kwargs: None  # nobody sits there
        out, err = sys.stdout, sys.stderr
        scheduler, fabric = job.run()
        sys.stdout, sys.stderr = out, err
        if shown:
            tell_failure(job, scheduler)
        outcome = outcome_of(scheduler, fabric)
        sys.stdout.flush()
        sys.stderr.flush()
        counts = tuple(outcome.counts.items())
        found = Verdict(outcome.code, tuple(outcome.blame), counts, tuple(outcome.named))
        with os.fdopen(writer, "wb") as file:
            pickle.dump(found, file)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _line(text: str) -> str:
    return text.splitlines()[0] if text else ""
