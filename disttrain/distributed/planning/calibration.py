"""Fits the constants to the half of the measurements that is for it, and says how far off they are.

Coordinate by coordinate, each by a factor that grows while it helps and shrinks where not, so that
the mean of |log(predicted / measured)| falls: a measure that few odd rows cannot rule. Rows of the
other half are never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from .clusters import Machines, read_cluster
from .constants import Constants
from .costs import Costs
from .measurements import Case
from .memory import Memory

Values = Mapping[str, float]
# No more than a data sheet promises, and not so little that a row or two could say anything.
_BOUNDS = {
    **dict.fromkeys(("memory", "network", "fast_links"), (0.3, 0.95)),
    "products": (0.4, 0.95),
    "attention": (0.15, 0.95),
    "loss_bytes": (4.0, 60.0),
}
_OF_MEMORY = ("workspace_bytes", "logit_bytes", "fragments")


@dataclass(frozen=True)
class Bench:
    """The clusters of the cases, by the names of their files."""

    clusters: Mapping[str, Machines]

    @staticmethod
    def of(folder: Path) -> Bench:
        return Bench({path.stem: read_cluster(path) for path in sorted(folder.glob("*.toml"))})

    def costs(self, case: Case, values: Values) -> Costs:
        machines = self.clusters[case.cluster].sized(case.layout.devices)
        return Costs(case.model, case.layout, machines, Constants(values), case.stack)

    def seconds(self, case: Case, values: Values) -> float:
        return self.costs(case, values).times().total

    def bytes(self, case: Case, values: Values) -> float:
        return Memory(self.costs(case, values)).held().total


def miss(predicted: float, measured: float) -> float:
    return abs(math.log(predicted / measured))


def fit(bench: Bench, cases: Sequence[Case], values: Values, rounds: int = 12) -> dict[str, float]:
    """Better values. Only cases of the calibrating half may be given."""
    assert not any(case.scored for case in cases), "the scored half is not for fitting"
    times = {n: v for n, v in values.items() if n.split(".")[0] not in _OF_MEMORY}
    rest = {n: v for n, v in values.items() if n not in times}
    found = _descend(
        lambda case, trial: miss(bench.seconds(case, {**rest, **trial}), case.seconds),
        cases,
        times,
        rounds,
    )
    weighed = [case for case in cases if case.memory]
    found |= _descend(
        lambda case, trial: miss(bench.bytes(case, {**times, **trial}), case.memory),
        weighed,
        rest,
        rounds,
    )
    return {name: float(f"{found[name]:.4g}") for name in values}


def _descend(
    missed: Callable[[Case, Values], float],
    cases: Sequence[Case],
    start: Values,
    rounds: int,
) -> dict[str, float]:
    values, steps = dict(start), dict.fromkeys(start, 0.25)
    now = [missed(case, values) for case in cases]
    moved = {name: _moved(missed, cases, values, name, now) for name in values}
    for _ in range(rounds):
        for name, indices in moved.items():
            best = sum(now[i] for i in indices)
            better = None
            for factor in (1 + steps[name], 1 / (1 + steps[name])):
                trial = {**values, name: values[name] * factor}
                low, high = _BOUNDS.get(name.split(".")[0], (0.0, math.inf))
                if not low <= trial[name] <= high:
                    continue
                each = [missed(cases[i], trial) for i in indices]
                if sum(each) < best - 1e-9:
                    best, better = sum(each), (trial, each)
            if better is None:
                steps[name] *= 0.5
                continue
            values = better[0]
            steps[name] *= 1.3
            for i, value in zip(indices, better[1], strict=True):
                now[i] = value
    return values


def _moved(
    missed: Callable[[Case, Values], float],
    cases: Sequence[Case],
    values: Values,
    name: str,
    now: Sequence[float],
) -> list[int]:
    """The cases that a constant matters to."""
    trial = {**values, name: values[name] * 1.3}
    return [i for i, case in enumerate(cases) if missed(case, trial) != now[i]]


def without(
    bench: Bench, out: Sequence[Case], cases: Sequence[Case], values: Values
) -> dict[str, float]:
    """Constants as if ``out`` had never been measured, but ``cases``, of the calibrating half: what
    matters to the former alone is not known, and a default among it is the mean of its kin."""

    def missed(case: Case, trial: Values) -> float:
        seconds = miss(bench.seconds(case, trial), case.seconds)
        return seconds + (miss(bench.bytes(case, trial), case.memory) if case.memory else 0.0)

    def mattering(some: Sequence[Case]) -> set[str]:
        now = [missed(case, values) for case in some]
        return {name for name in values if _moved(missed, some, values, name, now)}

    known = mattering(cases)
    unknown = mattering(out) - known
    start = {name: value for name, value in values.items() if name not in unknown}
    for name in unknown:
        what, _, of = name.partition(".")
        kin = [values[n] for n in known if n.startswith(f"{what}.")]
        if of in ("", "default"):
            start[name] = mean(kin) if kin else values[name]
    return fit(bench, cases, start, 8)


@dataclass(frozen=True)
class Error:
    """Of several cases, in parts of what was measured."""

    count: int
    mean: float
    worst: float


def error(predicted: Sequence[float], measured: Sequence[float]) -> Error:
    found = [abs(p / m - 1.0) for p, m in zip(predicted, measured, strict=True)]
    return Error(len(found), mean(found), max(found)) if found else Error(0, 0.0, 0.0)


def step_error(bench: Bench, cases: Sequence[Case], values: Values) -> Error:
    return error([bench.seconds(c, values) for c in cases], [c.seconds for c in cases])


def memory_error(bench: Bench, cases: Sequence[Case], values: Values) -> Error:
    """Of the cases whose memory was told."""
    told = [c for c in cases if c.memory]
    return error([bench.bytes(c, values) for c in told], [c.memory for c in told])
