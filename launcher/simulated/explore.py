"""``dtrun --simulate N --explore K``: try schedules and faults, show the simplest that fails; then
the orders in which messages can meet receives (``orders``).

Every trial runs in a process of its own (``forked``). Which trials there are, and what counts as a
failure, is ``disttrain.comm.transports.sim.explore``'s.
"""

from __future__ import annotations

import dataclasses
import importlib
import shlex
import sys
import time

from disttrain.comm.transports.sim.explore import Trial, Verdict, shrink, trials, unexpected
from disttrain.comm.transports.sim.faults import DELAY, DROP, KILL

from ..options.simulation import Flags, words_of
from ..plan.job import Plan
from .forked import Lost, in_child
from .job import NO_TIME, Job, make_cluster, outcome_of, say, tell_failure
from .orders import explore_orders


def explore(plan: Plan, flags: Flags) -> int:
    """Try ``flags.explore`` trials; 0 where none fails, else 1 after telling the simplest one."""
    make_cluster(plan.num_ranks, flags, NO_TIME)  # refuses flags that do not fit
    for name in (*plan.preloads, *filter(None, [plan.face])):
        importlib.import_module(name)  # once, for all trials
    given = flags
    flags = dataclasses.replace(flags, explore=0, timeline="", chakra="")
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
            simplest, verdict = _simplest(plan, flags, trial, found)
            code = _tell(plan, flags, simplest, verdict)
            if simplest.faults:  # it says nothing of runs in which nothing is lost
                explore_orders(plan, given, given.explore)
            return code
    say(f"{tried} schedules and faults tried in {time.monotonic() - start:.1f} s: none fails")
    return explore_orders(plan, given, given.explore)


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
    words += plan.as_face
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
    try:
        return in_child(lambda: _run(plan, flags, trial, shown), shown)
    except Lost as lost:
        return Verdict(1, ((-1, lost.kind, str(lost)),))


def _run(plan: Plan, flags: Flags, trial: Trial, shown: bool) -> Verdict:
    """In the forked process."""
    plan = dataclasses.replace(plan, num_ranks=trial.num_ranks)
    cluster = make_cluster(trial.num_ranks, _flags_of(flags, trial), NO_TIME)
    job = Job(plan, cluster, trial.seed)
    out, err = sys.stdout, sys.stderr
    scheduler, fabric = job.run()
    sys.stdout, sys.stderr = out, err
    if shown:
        tell_failure(job, scheduler)
    outcome = outcome_of(scheduler, fabric)
    counts = tuple(outcome.counts.items())
    return Verdict(outcome.code, tuple(outcome.blame), counts, tuple(outcome.named))


def _line(text: str) -> str:
    return text.splitlines()[0] if text else ""
