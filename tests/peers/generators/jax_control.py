"""Generated programs of nested loops and branches over trees, for JAX and for its face alike.

A program is a function ``f(lax, state)`` from a tree of arrays to one of the same form, drawn from
a seed; it is written by names that both have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Program = Callable[[Any, dict], dict]
FORMS = ("scan", "fori", "while", "cond", "switch", "map", "plain", "carry")


def state(rng: np.random.Generator) -> dict:
    """What programs begin with."""
    return {
        "v": rng.normal(size=3).astype(np.float32), "m": (rng.normal(size=(2, 3)) / 2).astype("f"),
        "n": np.int32(rng.integers(0, 4)),
    }  # fmt: skip


def program(rng: np.random.Generator, depth: int = 2) -> Program:
    """One of ``depth`` loops and branches inside each other."""
    steps = [_step(rng, depth) for _ in range(int(rng.integers(1, 4)))]

    def run(lax: Any, s: dict) -> dict:
        for step in steps:
            s = step(lax, s)
        return s

    return run


def _step(rng: np.random.Generator, depth: int) -> Program:
    form = rng.choice(FORMS) if depth else "plain"
    return _MAKE[str(form)](rng, depth)


def _plain(rng: np.random.Generator, depth: int) -> Program:
    which, c = int(rng.integers(5)), np.float32(rng.normal())

    def run(lax: Any, s: dict) -> dict:
        v, m = s["v"], s["m"]
        if which == 0:
            v = lax.tanh(lax.add(v, c))
        elif which == 1:
            v = lax.sin(lax.mul(v, lax.reduce_sum(m, (0,))))
        elif which == 2:
            m = lax.mul(m, lax.broadcast_in_dim(lax.cos(v), (2, 3), (1,)))
        elif which == 3:
            v = lax.dot(lax.logistic(v), lax.dot(lax.transpose(m, (1, 0)), m))
        else:
            v = lax.dynamic_update_index_in_dim(v, lax.reduce_max(m, (0, 1)), lax.rem(s["n"], 3), 0)
        return {"v": v, "m": m, "n": s["n"]}

    return run


def _carry(rng: np.random.Generator, depth: int) -> Program:
    return lambda lax, s: {**s, "n": lax.add(s["n"], np.int32(1))}


def _scan(rng: np.random.Generator, depth: int) -> Program:
    inner, reverse, many = program(rng, depth - 1), bool(rng.integers(2)), int(rng.integers(1, 4))

    def run(lax: Any, s: dict) -> dict:
        def body(c: dict, x: Any) -> tuple:
            c = inner(lax, {**c, "v": lax.add(c["v"], x)})
            return c, (lax.reduce_sum(c["v"], (0,)), None)

        xs = lax.broadcast(lax.mul(s["v"], np.float32(0.1)), (many,))
        c, (ys, _) = lax.scan(body, s, xs, reverse=reverse)
        return {**c, "v": lax.add(c["v"], lax.reduce_sum(ys, (0,)))}

    return run


def _fori(rng: np.random.Generator, depth: int) -> Program:
    inner, times = program(rng, depth - 1), int(rng.integers(0, 4))
    return lambda lax, s: lax.fori_loop(0, times, lambda i, c: inner(lax, c), s)


def _while(rng: np.random.Generator, depth: int) -> Program:
    inner, limit = program(rng, depth - 1), np.int32(rng.integers(2, 6))

    def run(lax: Any, s: dict) -> dict:
        def body(c: tuple) -> tuple:
            return lax.add(c[0], np.int32(1)), inner(lax, c[1])

        held = {**s, "v": lax.stop_gradient(s["v"]), "m": lax.stop_gradient(s["m"])}
        start = lax.rem(s["n"], np.int32(4))
        found = lax.while_loop(lambda c: lax.lt(c[0], limit), body, (start, held))[1]
        return {**s, "v": lax.add(s["v"], lax.mul(found["v"], np.float32(0.5)))}

    return run


def _cond(rng: np.random.Generator, depth: int) -> Program:
    yes, no, c = program(rng, depth - 1), program(rng, depth - 1), np.float32(rng.normal())

    def run(lax: Any, s: dict) -> dict:
        pred = lax.gt(lax.reduce_sum(s["v"], (0,)), c)
        return lax.cond(pred, lambda t: yes(lax, t), lambda t: no(lax, t), s)

    return run


def _switch(rng: np.random.Generator, depth: int) -> Program:
    branches = [program(rng, depth - 1) for _ in range(3)]

    def run(lax: Any, s: dict) -> dict:
        return lax.switch(s["n"], [lambda t, b=b: b(lax, t) for b in branches], s)

    return run


def _map(rng: np.random.Generator, depth: int) -> Program:
    inner, size = program(rng, depth - 1), [None, 1, 2][int(rng.integers(3))]

    def run(lax: Any, s: dict) -> dict:
        rows = lax.map(lambda r: inner(lax, {**s, "v": r})["v"], s["m"], batch_size=size)
        return {**s, "m": lax.tanh(rows)}

    return run


_MAKE = {
    "scan": _scan, "fori": _fori, "while": _while, "cond": _cond, "switch": _switch, "map": _map,
    "plain": _plain, "carry": _carry,
}  # fmt: skip
