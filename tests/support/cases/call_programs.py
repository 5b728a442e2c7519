"""Random programs of calls over workers, and the same programs in one process.

``run_step(seed, worker, depth, tensors)`` is one function call on ``worker``: some arithmetic on
its tensors and on the worker's parameters, some calls to other workers (in a row, or several under
way at once), results of which some are not used. ``remote`` says how a call is made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import disttrain as dt
from disttrain import Tensor

SIZE = 3


class Program:
    """``call(worker, fn, *args)`` and ``start`` (which gives something to ``wait()`` for), or None
    to compute everything here. ``params``: by worker."""

    def __init__(self, size: int, seed: int) -> None:
        rng = random.Random(seed)
        self.size, self.seed = size, seed
        self.inputs = [_leaf(rng) for _ in range(3)]
        self.params = [[_leaf(rng) for _ in range(2)] for _ in range(size)]

    def leaves(self, worker: int) -> list[Tensor]:
        return self.params[worker] + (self.inputs if worker == 0 else [])


PROGRAMS: dict[int, Program] = {}  # where workers find the parameters; programs take theirs away


def _leaf(rng: random.Random) -> Tensor:
    values = [rng.uniform(-1, 1) for _ in range(SIZE)]
    return dt.tensor(values, dtype=dt.float64, requires_grad=True)


def run_step(
    key: int, seed: int, worker: int, depth: int, tensors: Sequence[Tensor], remote: Any
) -> list[Any]:
    """One call's work; ``remote`` is (call, start), or None."""
    program = PROGRAMS[key]
    rng = random.Random(seed)
    pool = list(tensors) + [rng.choice(program.params[worker])]

    def args() -> tuple:
        to = rng.randrange(program.size)
        given = [rng.choice(pool) for _ in range(rng.randint(1, 3))]
        return to, rng.randrange(1 << 30), given

    for _ in range(rng.randint(2, 5)):
        kind = rng.randrange(8)
        if kind < 3 or depth == 0:
            pool.append(_compute(rng, pool, program.params[worker]))
        elif kind < 6:
            to, sub, given = args()
            pool += _tensors(_call(key, sub, to, depth - 1, given, remote))
        elif kind == 6:
            started = [_start(key, *args_, depth - 1, remote) for args_ in (args(), args())]
            for one in started:
                pool += _tensors(one())
        else:
            to, sub, given = args()
            _call(key, sub, to, depth - 1, given, remote)  # nobody uses the result
    last = pool[-1] if rng.random() < 0.7 else rng.choice(pool)
    out: list[Any] = [last] + [rng.choice(pool) for _ in range(rng.randint(0, 2))]
    if rng.random() < 0.3:
        out.append(dt.tensor([1, 2, 3]))
    return out


def _compute(rng: random.Random, pool: list[Tensor], params: list[Tensor]) -> Tensor:
    a, b = rng.choice(pool), rng.choice(pool + params)
    kind = rng.randrange(7)
    if kind == 0:
        return a * b
    if kind == 1:
        return a.sin() + b
    if kind == 2:
        return a.clone().mul_(b)  # in place
    if kind == 3:
        view = a[1:]
        return dt.cat([view, b[:1]])
    if kind == 4:
        return (a - b).tanh()
    if kind == 5:
        with dt.no_grad():
            frozen = a * 2
        return frozen * b
    base = a * 1.5
    base[0:2].mul_(b[1:])  # in place through a view
    return base


def _tensors(values: list[Any]) -> list[Tensor]:
    return [t for t in values if t.is_floating_point()]


def _call(key: int, seed: int, to: int, depth: int, given: list, remote: Any) -> list:
    if remote is None:
        return _copies(run_step(key, seed, to, depth, _copies(given), None))
    return remote[0](to, run_step, key, seed, to, depth, given, remote)


def _start(
    key: int, to: int, seed: int, given: list, depth: int, remote: Any
) -> Callable[[], list]:
    if remote is None:
        result = _call(key, seed, to, depth, given, None)
        return lambda: result
    return remote[1](to, run_step, key, seed, to, depth, given, remote).wait


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    """What crosses between workers is a copy."""
    return [t.clone() if t.requires_grad else t.detach().clone() for t in tensors]


def loss_of(key: int, remote: Any) -> Tensor:
    """The loss of program ``key``, computed on worker 0."""
    program = PROGRAMS[key]
    out = run_step(key, program.seed, 0, 3, program.inputs, remote)
    total = sum((t * (i + 1)).sum() for i, t in enumerate(_tensors(out)))
    return total + program.inputs[0].sum() * 0
