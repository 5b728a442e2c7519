"""Bodies made of bodies: over a batch, with tangents, backward. Each is staged anew, so that it is
of the same kind and can be derived from again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

from ..core.algebra import Algebra
from ..core.bodies import Body
from ..core.tensor import Tensor
from .jvp import Forward
from .levels import settle
from .reverse import pulled
from .staging import stage
from .vmap import Batch

Flags = Sequence[bool]


class Derived(NamedTuple):
    """A body, and which of its results there are: batched, or with a tangent."""

    body: Body
    moves: list[bool]


def is_moving(meta: tuple) -> bool:
    """Whether a value of this type has derivatives."""
    return meta[1].kind in "fcV"


def metas_of(body: Body, flags: Flags) -> list[tuple]:
    """Those of what the body is given, where ``flags`` say."""
    return list(compress(body.given, flags))


def restaged(fn: Callable, metas: Sequence[tuple]) -> Body:
    """The body of a function that calls bodies."""
    return stage(fn, metas, closed=True).body


def batched(body: Body, flags: Flags, size: int, force: Flags, randomness: str) -> Derived:
    """``body`` over a batch of ``size``, of which those of its arguments have one (as their first
    dimension) that ``flags`` say. Results that ``force`` says get one."""
    there: list[bool] = []

    def fn(*values: Tensor) -> list:
        level = Batch(size, randomness)
        with level.running():
            given = [level.wrap(v, 0) if f else v for v, f in zip(values, flags, strict=True)]
            outs = settle(body(*given))
            moves = [level.owns(o) and o.bdim is not None for o in outs]
            there[:] = [m or f for m, f in zip(moves, force, strict=True)]
        return [
            level.leave(o, 0) if has else o.inner if level.owns(o) else o
            for o, has in zip(outs, there, strict=True)
        ]

    metas = [((size, *m[0]) if f else m[0], m[1]) for m, f in zip(body.given, flags, strict=True)]
    return Derived(restaged(fn, metas), there)


def pushed(body: Body, flags: Flags, force: Flags) -> Derived:
    """``body`` with tangents: it takes those of the arguments that ``flags`` say after all of its
    arguments, and gives those that there are, or that ``force`` says, after all of its results."""
    there: list[bool] = []
    count = body.count

    def fn(*values: Tensor) -> list:
        level = Forward()
        tangents = iter(values[count:])
        with level.running():
            given = [
                level.wrap(v, next(tangents) if f else None)
                for v, f in zip(values[:count], flags, strict=True)
            ]
            outs = settle(body(*given))
        primals = [o.inner if level.owns(o) else o for o in outs]
        found = [o.tangent if level.owns(o) else None for o in outs]
        there[:] = [t is not None or f for t, f in zip(found, force, strict=True)]
        return [*primals, *_dense(primals, found, there)]

    return Derived(restaged(fn, [*body.given, *metas_of(body, flags)]), there)


def _dense(primals: list, tangents: list, there: list[bool]) -> list:
    return [
        Algebra.zeros_like(p) if t is None else t
        for p, t, has in zip(primals, tangents, there, strict=True)
        if has
    ]


def pulled_back(body: Body, wanted: Flags) -> Body:
    """The gradients of the arguments that ``wanted`` says, of the arguments and of the gradients of
    all results that have such."""
    ends = [is_moving(meta) for meta in body.results]

    def fn(*values: Tensor) -> list:
        given, cotangents = values[: body.count], values[body.count :]
        places = [i for i, want in enumerate(wanted) if want]

        def of(leaves: list) -> list:
            whole = list(given)
            for i, leaf in zip(places, leaves, strict=True):
                whole[i] = leaf
            return list(compress(body(*whole), ends))

        if not any(ends):
            return [Algebra.zeros_like(given[i]) for i in places]
        _, pull = pulled(of, ([given[i] for i in places],), False)
        return pull(list(cotangents))[0]

    return restaged(fn, [*body.given, *compress(body.results, ends)])
