"""Loops as instructions: ``Scan`` for a number of turns that is known, ``While`` for others.

Their bodies are data (``Body``), so a captured program has one instruction for a loop of any number
of turns. Each rule of such an instruction makes another body of its own: a batch's, one with
tangents, one that goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from ..core import bodies
from ..core.algebra import Algebra
from ..core.bodies import Body
from ..core.gate import Primitive
from ..core.tensor import Tensor
from ..errors import NoWayBack
from ..ops.functions.elementwise import where
from ..ops.primitives.batching import fronted
from ..ops.primitives.views import cat, getitem, permute, reshape
from . import derived_bodies as derived
from .derived_bodies import is_moving, restaged

ndarray = np.ndarray
NO_WAY_BACK = (
    "Reverse-mode differentiation does not work for while_loop, or fori_loop with bounds that "
    "depend on values: how many turns there will be is not known. Use scan, or fori_loop with "
    "bounds that are numbers"
)


class Instructive(Primitive):
    """What instructions with bodies have in common: any number of arguments and results."""

    def __init__(self, name: str, count: int, results: list[tuple], bodies: Sequence[Body]) -> None:
        super().__init__(name, self._forward, tuple(f"x{i}" for i in range(count)))
        self.count, self.results = count, results
        self.multi = self.differentiable = True
        self.kinds = True
        everything = tuple(range(count))
        self.saves = (everything,) * count
        self.save_bits = [(1 << count) - 1] * count
        self.vjp_all, self.batch, self.dual = self._pull, self._batched, self._pushed
        self.jvp = lambda primals, tangents, params: self._pushed(primals, tangents)[1]
        self.shape = lambda *given, **params: results
        self.checks = any(step.prim.checks for body in bodies for step in body.steps)
        self.outward = any(step.prim.outward for body in bodies for step in body.steps)

    def _forward(self, *arrays: Any) -> list:
        raise NotImplementedError

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        if any(getattr(a, "has_data", True) is False for a in arrays):
            return next(a for a in arrays if not getattr(a, "has_data", True)).run(
                self, arrays, params
            )
        return self._forward(*arrays)

    def _pull(self, g: tuple, out: Any, values: Any, node: Any, needs: tuple) -> Any:
        raise NotImplementedError

    def _batched(self, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        raise NotImplementedError

    def _pushed(self, primals: tuple, tangents: tuple) -> tuple:
        raise NotImplementedError


class Scan(Instructive):
    """Arguments: what does not change, what is carried, and sequences, whose first dimension is
    that of the turns; ``body`` takes these with one slice of each sequence, and gives what is
    carried on and a slice of each result. ``keep``: the results end with what every turn began
    with, for going back.
    """

    def __init__(
        self, body: Body, consts: int, carries: int, length: int, reverse: bool, keep: bool = False
    ) -> None:
        self.body, self.consts, self.carries = body, consts, carries
        self.length, self.reverse, self.keep = length, reverse, keep
        ends = body.results
        slices = [*ends[carries:], *(ends[:carries] if keep else [])]
        self.slices = slices
        stacked = [((length, *shape), kind) for shape, kind in slices]
        super().__init__("scan", body.count, [*ends[:carries], *stacked], [body])
        self.made: dict[Any, Any] = {}  # what was derived of it
        if keep:
            first = len(self.results) - carries
            self.saves_out, self.out_bits = True, -1
            self.kept = lambda outs: range(first, len(outs))

    def split(self, values: Sequence) -> tuple[list, list, list]:
        """What does not change, what is carried, the sequences."""
        a, b = self.consts, self.consts + self.carries
        return list(values[:a]), list(values[a:b]), list(values[b:])

    # --- forward ------------------------------------------------------------------------------
    def _forward(self, *arrays: Any) -> list:
        consts, carry, xs = self.split(arrays)
        run, n = self.body.run(self.length), self.carries
        own = all(a.__class__ is ndarray for a in arrays)
        rows: list = [
            np.empty((self.length, *shape), kind) if own else [None] * self.length
            for shape, kind in self.slices
        ]
        turns = range(self.length)
        for t in reversed(turns) if self.reverse else turns:
            found = run([*consts, *carry, *[x[t, ...] if own else _slice(x, t) for x in xs]])
            if self.keep:
                found = [*found, *carry]
            for row, r in zip(rows, found[n:], strict=True):
                row[t] = r
            carry = found[:n]
        if own:
            return [*(bodies.own(c, arrays, self.body) for c in carry), *rows]
        return [*carry, *(_joined(row) for row in rows)]

    # --- rules --------------------------------------------------------------------------------
    def _pull(self, g: tuple, out: Any, values: Any, node: Any, needs: tuple) -> tuple:
        values, n = list(values), self.carries
        begins = list(out[len(out) - n :]) if self.keep else self._begins(values)
        bare = self.keep and not _used(g, self)
        back, wanted = self._back(tuple(needs), bare)
        ends = self.results[: len(self.results) - n] if bare else self.results
        given = [
            zeros_of(meta, values) if c is None else c
            for c, meta in zip(g, ends, strict=False) if is_moving(meta)
        ]  # fmt: skip
        carried = sum(map(is_moving, self.results[:n]))
        consts, _, xs = self.split(values)
        sums = [zeros_of(self.body.given[i], values) for i in range(self.consts) if wanted[i]]
        outs = list(back(*consts, *sums, *given[:carried], *begins, *xs, *given[carried:]))
        found = [outs.pop(0) if want else None for want in wanted]
        return tuple(r if need else None for r, need in zip(found, needs, strict=True))

    def _begins(self, values: list) -> list:
        """What every turn begins with, by going through all of them once more."""
        keeping = self.made.get("keeping")
        if keeping is None:
            keeping = self.made["keeping"] = Scan(
                self.body, self.consts, self.carries, self.length, self.reverse, True
            )
        return list(keeping(*values))[len(self.results) :]

    def _back(self, needs: tuple, bare: bool) -> tuple[Scan, list[bool]]:
        """The scan that goes back, and for which arguments it gives gradients: those wanted, and
        all that are carried. ``bare``: nothing comes for what was kept."""
        found = self.made.get((needs, bare))
        if found is None:
            found = self.made[needs, bare] = self._made_back(needs, bare)
        return found

    def _made_back(self, needs: tuple, bare: bool) -> tuple[Scan, list[bool]]:
        body, n = self.body, self.carries
        moving = [is_moving(meta) for meta in body.given]
        inside = range(self.consts, self.consts + n)
        wanted = [m and (needs[i] or i in inside) for i, m in enumerate(moving)]
        pull = derived.pulled_back(body, wanted)
        sums, extra = sum(wanted[: self.consts]), sum(moving[i] for i in inside)
        slices = [meta for meta in body.results[n:] if is_moving(meta)]
        kept = 0 if bare or not self.keep else extra
        metas = body.given
        head, carry, tail = self.split(metas)
        carried = [metas[i] for i in inside if moving[i]]
        totals = [metas[i] for i in range(self.consts) if wanted[i]]

        def turn(*values: Any) -> list:
            take = iter(values)
            given = [[next(take) for _ in part] for part in (
                head, totals, carried, carry, tail, slices, carried[:kept])]  # fmt: skip
            consts, total, ct, begin, x, ct_slices, ct_kept = given
            found = pull(*consts, *begin, *x, *ct, *ct_slices)
            total = [a + b for a, b in zip(total, found, strict=False)]
            own = found[sums : sums + extra]
            own = [a + b for a, b in zip(own, ct_kept, strict=True)] if kept else own
            return [*total, *own, *found[sums + extra :]]

        parts = [*head, *totals, *carried, *carry, *tail, *slices, *carried[:kept]]
        whole = restaged(turn, parts)
        return Scan(whole, len(head), sums + extra, self.length, not self.reverse), wanted

    def _batched(self, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        consts, carry, xs = self.split([d is not None for d in dims])
        n = self.carries
        while True:
            key = ("batched", size, *consts, *carry, *xs)
            if key not in self.made:
                force = [*carry, *[False] * (len(self.body.ends) - n)]
                self.made[key] = derived.batched(
                    self.body, [*consts, *carry, *xs], size, force, "different"
                )
            body, there = self.made[key]
            if there[:n] == carry:
                break
            carry = there[:n]
        scan = self._like(key, body, self.consts, n)
        given = []
        for i, (a, d) in enumerate(zip(args, dims, strict=True)):
            if i >= self.consts + n:
                given.append(a if d is None else _second(a, d))
            elif d is not None or (i >= self.consts and carry[i - self.consts]):
                given.append(fronted(a, d, size))
            else:
                given.append(a)
        outs = scan(*given)
        places = [0 if has else None for has in there[:n]] + [1 if h else None for h in there[n:]]
        return outs, tuple(places + [1 if has else None for has in there[:n] if self.keep])

    def _like(self, key: Any, body: Body, consts: int, carries: int) -> Scan:
        """Another scan as long as this one, over a body derived of its own."""
        found = self.made.get((key, "scan"))
        if found is None:
            found = self.made[key, "scan"] = Scan(
                body, consts, carries, self.length, self.reverse, self.keep
            )
        return found

    def _pushed(self, primals: tuple, tangents: tuple) -> tuple:
        consts, carry, xs = self.split([t is not None for t in tangents])
        n = self.carries
        while True:
            key = ("pushed", *consts, *carry, *xs)
            if key not in self.made:
                force = [*carry, *[False] * (len(self.body.ends) - n)]
                self.made[key] = derived.pushed(self.body, [*consts, *carry, *xs], force)
            body, there = self.made[key]
            if there[:n] == carry:
                break
            carry = there[:n]
        if (key, "body") not in self.made:
            self.made[key, "body"] = self._regrouped(body, [*consts, *carry, *xs], there)
        whole = self.made[key, "body"]
        scan = self._like(key, whole, self.consts + sum(consts), n + sum(carry))
        own, moved = self.split(primals), self.split(tangents)
        carried = [
            zeros_of(self.body.given[self.consts + i], primals) if t is None and has else t
            for i, (t, has) in enumerate(zip(moved[1], carry, strict=True))
        ]
        rest = [compress(moved[0], consts), compress(carried, carry), compress(moved[2], xs)]
        parts = [[*a, *b] for a, b in zip(own, rest, strict=True)]
        return self._dealt(list(scan(*parts[0], *parts[1], *parts[2])), there)

    def _regrouped(self, body: Body, flags: list[bool], there: list[bool]) -> Body:
        """A body that takes and gives tangents beside what they are of: constants' with constants,
        what is carried with what is carried."""
        groups = self.split(range(self.body.count))
        tangents = dict(zip(compress(range(len(flags)), flags), range(len(flags), body.count)))
        order = [i for group in groups
                 for i in (*group, *(tangents[k] for k in group if k in tangents))]  # fmt: skip
        n, count = self.carries, len(self.body.ends)
        places = dict(zip(compress(range(count), there), range(count, count + sum(there))))
        ends = [k for group in (range(n), range(n, count))
                for k in (*group, *(places[i] for i in group if i in places))]  # fmt: skip

        def fn(*values: Tensor) -> list:
            given = dict(zip(order, values, strict=True))
            outs = body(*[given[i] for i in range(body.count)])
            return [outs[k] for k in ends]

        return restaged(fn, [body.given[i] for i in order])

    def _dealt(self, outs: list, there: list[bool]) -> tuple:
        """(results, tangents) of the results of a scan over a body with both."""
        n, count = self.carries, len(self.body.ends)
        groups = [(range(n), there[:n]), (range(n, count), there[n:])]
        groups += [(range(n), there[:n])] if self.keep else []
        own: list = []
        moved: list = []
        for group, has in groups:
            own += [outs.pop(0) for _ in group]
            moved += [outs.pop(0) if h else None for h in has]
        return tuple(own), tuple(moved)


def _used(g: tuple, scan: Scan) -> bool:
    """Whether anything has come for what was kept (nobody sees it but derivatives of higher
    order); arrays of zeros stand for nothing."""
    kept = [x for x in g[len(scan.results) - scan.carries :] if x is not None]
    return any(not isinstance(x, ndarray) or x.any() for x in kept)


def _second(a: Tensor, d: int) -> Any:
    """``a`` with dimension ``d``, the batch, as its second one."""
    n = a.ndim
    order = [i for i in range(n) if i != d]
    order.insert(1, d)
    return a if order == list(range(n)) else permute(a, dims=tuple(order))


def zeros_of(meta: tuple, beside: Sequence) -> Any:
    """Zeros of a shape and type, of the kind of values that go along."""
    if any(isinstance(v, Tensor) for v in beside):
        return Algebra.zeros(*meta)
    return np.zeros(*meta)


def _slice(x: Any, t: int) -> Any:
    return getitem.compute((x,), {"index": (t,)})


def _joined(rows: list) -> Any:
    """Rows as one array of whatever kind they are."""
    given = [reshape.compute((r,), {"shape": (1, *r.shape)}) for r in rows]
    return cat.compute(given, {"dim": 0, "sizes": (1,) * len(rows)})


class While(Instructive):
    """Arguments: what does not change of the condition, of the body, and what is carried."""

    def __init__(
        self, cond: Body, body: Body, of_cond: int, of_body: int, no_way_back: str = NO_WAY_BACK
    ) -> None:
        self.cond, self.body, self.of_cond, self.of_body = cond, body, of_cond, of_body
        self.no_way_back = no_way_back
        self.made: dict[Any, Any] = {}
        super().__init__("while", of_cond + body.count, body.results, [cond, body])

    def split(self, values: Sequence) -> tuple[list, list, list]:
        """What belongs to the condition, to the body, what is carried."""
        a, b = self.of_cond, self.of_cond + self.of_body
        return list(values[:a]), list(values[a:b]), list(values[b:])

    def _forward(self, *arrays: Any) -> list:
        first, consts, carry = self.split(arrays)
        going, run = self.cond.run(8), self.body.run(8)
        while _truth(going([*first, *carry])[0]):
            carry = run([*consts, *carry])
        return [bodies.own(c, arrays, self.body) for c in carry]

    def _pull(self, g: tuple, out: Any, values: Any, node: Any, needs: tuple) -> Any:
        raise NoWayBack(self.no_way_back)

    def _batched(self, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        flags = [d is not None for d in dims]
        key = ("batched", size, *flags)
        if key not in self.made:
            self.made[key] = self._made_batched(flags, size)
        loop, carry, alone = self.made[key]
        first, consts, begin = self.split(list(zip(args, dims, strict=True)))
        given = [a if d is None else fronted(a, d, size) for a, d in (*first, *consts)]
        if not alone:
            given = [*given[: len(first)], *given]
        given += [
            fronted(a, d, size) if has else a for (a, d), has in zip(begin, carry, strict=True)
        ]
        return loop(*given), tuple(0 if has else None for has in carry)

    def _made_batched(self, flags: list[bool], size: int) -> tuple:
        """The loop over a batch, what of the carried has one, and whether all examples turn alike.
        Where they do not, the loop goes on while one wants to, and the others stay as they are."""
        first, consts, carry = self.split(flags)
        while True:
            body, there = derived.batched(self.body, [*consts, *carry], size, carry, "different")
            if there == carry:
                break
            carry = there
        cond, (apart,) = derived.batched(self.cond, [*first, *carry], size, [False], "different")
        if not apart:
            return While(cond, body, self.of_cond, self.of_body, self.no_way_back), carry, True
        carry = [True] * len(carry)
        body, _ = derived.batched(self.body, [*consts, *carry], size, carry, "different")
        cond, _ = derived.batched(self.cond, [*first, *carry], size, [True], "different")

        def any_goes(*values: Tensor) -> list:
            return [cond(*values)[0].any()]

        def turn(*values: Tensor) -> list:
            given = values[len(first) :]
            going = cond(*values[: len(first)], *given[len(consts) :])[0]
            found = body(*given)
            return [
                where(beside(going, new), new, old)
                for new, old in zip(found, given[len(consts) :], strict=True)
            ]

        whole = [*cond.given[: len(first)], *body.given]
        loop = While(restaged(any_goes, cond.given), restaged(turn, whole),
                     len(first), len(first) + len(consts), self.no_way_back)  # fmt: skip
        return loop, carry, False

    def _pushed(self, primals: tuple, tangents: tuple) -> tuple:
        flags = tuple(t is not None for t in tangents)
        key = ("pushed", *flags)
        if key not in self.made:
            self.made[key] = self._made_pushed(list(flags))
        loop, carry = self.made[key]
        first, consts, begin = self.split(primals)
        _, moved_consts, moved = self.split(tangents)
        moved = [
            zeros_of(meta, primals) if t is None else t
            for t, has, meta in zip(moved, carry, self.results, strict=True) if has
        ]  # fmt: skip
        outs = loop(*first, *consts, *[t for t in moved_consts if t is not None], *begin, *moved)
        n = len(carry)
        rest = iter(outs[n:])
        return tuple(outs[:n]), tuple(next(rest) if has else None for has in carry)

    def _made_pushed(self, flags: list[bool]) -> tuple:
        _, consts, carry = self.split(flags)
        while True:
            body, there = derived.pushed(self.body, [*consts, *carry], carry)
            if there == carry:
                break
            carry = there
        k, extra, n = len(consts), sum(consts), len(carry)

        def turn(*values: Tensor) -> list:
            own, moved_consts = values[:k], values[k : k + extra]
            begin, moved = values[k + extra : k + extra + n], values[k + extra + n :]
            return body(*own, *begin, *moved_consts, *moved)

        head, rest = body.given[: k + n], body.given[k + n :]
        metas = [*head[:k], *rest[:extra], *head[k:], *rest[extra:]]
        given = [*self.cond.given, *rest[extra:]]
        cond = restaged(lambda *values: self.cond(*values[: self.cond.count]), given)
        whole = restaged(turn, metas)
        return While(cond, whole, self.of_cond, k + extra, self.no_way_back), carry


def number_of(a: Any) -> Any:
    """The number of an array of one element."""
    return a.item() if hasattr(a, "item") else a.to_host().item()


def _truth(a: Any) -> bool:
    return bool(a) if a.__class__ is ndarray else bool(number_of(a))


def beside(flags: Any, like: Any) -> Any:
    """One flag for each example, in as many dimensions as ``like``."""
    shape = (flags.shape[0], *(1,) * (len(like.shape) - 1))
    return reshape(flags, shape=shape)
