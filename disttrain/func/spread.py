"""``spread``: a function of one rank's values; the ranks of a group are the examples.

It is ``vmap`` whose batch lies over ranks: each computes its own example, and collectives over the
axis name are those of the group. Values know whether they are each rank's own or one for all, so
that derivatives from outside are those of the whole function, as they are of ``vmap``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

from .. import tree
from ..core.gate import Primitive, Tracer, gate
from ..core.tensor import Tensor
from ..errors import ConfigError
from ..ops.functions import collectives as verbs
from ..ops.functions.collectives import How
from ..ops.functions.creation.data import as_tensor
from ..ops.functions.reduce import sum as added
from ..ops.functions.views.shapes import expand, unsqueeze
from . import batch_dims
from .levels import settle
from .vmap import Batch, BatchTracer

_new = object.__new__


class RankTracer(BatchTracer):
    """A value of this rank (``bdim`` 0), or one that all ranks have (None). Its numbers may be
    read."""

    @property
    def array(self) -> Any:
        return super().array if self.interp.over else self.inner.array

    def meta(self) -> tuple:
        return self.inner.meta()

    def steps(self) -> tuple:
        return Tracer.steps(self)

    def _data(self) -> Tensor:
        return self.detach()


class Ranks(Batch):
    """One active ``spread``: the examples are the ranks of a group, of which this is one."""

    name = "spread"

    def __init__(self, group: Any, axis_name: Hashable, varying: bool = False) -> None:
        super().__init__(group.size, "different", axis_name, varying)
        self.group = group

    def again(self) -> Ranks:
        return Ranks(self.group, self.axis_name, self.varying)

    def wrap(self, inner: Tensor, bdim: int | None) -> RankTracer:
        out = _new(RankTracer)
        out.inner, out.bdim, out.interp = inner, bdim, self
        return out

    def aligned(self, old: Any, new: Any) -> tuple[Tensor, BatchTracer]:
        if old.bdim == new.bdim:
            return old.inner, new
        return self.own(old), self.wrap(self.own(new), 0)

    def index(self) -> BatchTracer:
        return self.wrap(as_tensor(self.group.rank), 0)

    def own(self, x: Any) -> Any:
        """What this rank has of a value, whose derivative is this rank's own."""
        if x.bdim is not None or x.meta()[1].kind not in "fcV":
            return x.inner
        return verbs.Lent.on(self.group, How(), x.inner)

    def leave(self, out: Any, place: int | None = 0) -> Any:
        """``out`` outside: this rank's own."""
        if not self.owns(out):
            out = self.lift(out)
        return self.own(out)

    def summed(self, r: Any) -> Any:
        return verbs.Total.on(self.group, How(), self.leave(r))

    def _run(self, prim: Primitive, args: tuple, params: dict) -> Any:
        if prim.random:  # each rank draws its own
            with self.below():
                return self._wrapped(gate(prim, tuple([self._met(a) for a in args]), params), 0)
        if any(self.owns(a) and a.bdim is not None for a in args):
            return self._wrapped(prim(*[self._met(a) for a in args], **params), 0)
        return self._wrapped(prim(*[a.inner if self.owns(a) else a for a in args], **params), None)

    def _met(self, a: Any) -> Any:
        """What an argument that meets this rank's own values is below."""
        x = a.inner if self.owns(a) else a
        if not isinstance(x, Tensor) or (self.owns(a) and a.bdim is not None):
            return x
        followed = isinstance(x, Tracer) or x.requires_grad
        return self.own(a if self.owns(a) else self.lift(a)) if followed else x

    def _collective(self, prim: Primitive, x: Any, params: dict) -> Any:
        same = x.bdim is None
        if prim.name == "pvary":
            return self.wrap(
                self.own(x) if self.varying else x.inner, 0 if self.varying else x.bdim
            )
        if prim.name == "psum":
            inner = x.inner * self.size if same else verbs.Total.on(self.group, How(), x.inner)
            return self.wrap(inner, None)
        if prim.name == "all_gather_same" or (prim.name == "all_gather" and not self.varying):
            return self.wrap(self._joined(x), None)
        return self.wrap(getattr(self, "_" + prim.name)(self.own(x), params), 0)

    def _joined(self, x: Any) -> Any:
        row = unsqueeze(x.inner, 0)
        if x.bdim is None:
            return expand(row, (self.size, *row.shape[1:]))
        return verbs.Joined.on(self.group, How(), row)

    def _all_gather(self, x: Any, params: dict) -> Any:
        return verbs.AllGatherSingle.on(self.group, How(), unsqueeze(x, 0))

    def _psum_scatter(self, x: Any, params: dict) -> Any:
        return verbs.ReduceScatterSingle.on(self.group, How(), x)[0]

    def _own_part(self, x: Any, params: dict) -> Any:
        return x[self.group.rank]

    def _all_to_all(self, x: Any, params: dict) -> Any:
        shape = tuple(x.shape)
        return verbs.AllToAllSingle.on(self.group, How(shapes=(shape, shape)), x)

    def _ppermute(self, x: Any, params: dict) -> Any:
        takes, gives = [0] * self.size, [0] * self.size
        for source, target in params["perm"]:
            if source == self.group.rank:
                gives[target] = 1
            if target == self.group.rank:
                takes[source] = 1
        row = unsqueeze(x, 0)[: sum(gives)]
        shapes = ((sum(takes), *x.shape), tuple(row.shape))
        out = verbs.AllToAllSingle.on(self.group, How(shapes=shapes, splits=(takes, gives)), row)
        return added(out, 0, dtype=x.dtype)  # (of no rows: zeros)


def spread(
    func: Callable,
    axis_name: Hashable,
    group: Any,
    in_own: Any = True,
    out_own: Any = True,
    *,
    varying: bool = False,
    check: bool = True,
) -> Callable:
    """``func`` of this rank's values, among which collectives over ``axis_name`` are those of
    ``group``: every rank of it calls this. (``vmap``, whose examples are ranks.)

    ``in_own``, ``out_own``: which arguments and results are each rank's own (True), and which are
    one for all (False); a tree of them for nested ones. A result that is said to be one for all
    must be so by what it is computed of (``check=False``: is taken to be so). ``varying``:
    derivatives inside are with respect to the whole of what is one for all, the sum of all ranks'.
    """

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, rebuild = tree.flatten(args, with_none=True)
        own = _spread_over("in_own", in_own, args)
        level = Ranks(group, axis_name, varying)
        with level.running():
            given = [
                level.wrap(x, 0 if mine else None) if isinstance(x, Tensor) else x
                for x, mine in zip(leaves, own, strict=True)
            ]
            result = settle(func(*rebuild(given), **kwargs))
            outs, unflatten = tree.flatten(result, with_none=True)
            places = _spread_over("out_own", out_own, result)
            left = [_left(level, o, p, check) for o, p in zip(outs, places, strict=True)]
        return unflatten(left)

    return run


def _spread_over(where: str, entry: Any, value: Any) -> list:
    found = batch_dims.matched(entry, value)
    if found is None or not all(isinstance(mine, bool) for mine in found):
        raise ConfigError(
            f"spread: {where}={entry!r} is given for {tree.structure(value)}; needed is True or "
            "False, or a tree of them of the same form"
        )
    return found


def _left(level: Ranks, out: Any, own: bool, check: bool) -> Any:
    if not isinstance(out, Tensor):
        return out
    if own:
        return level.leave(out)
    if check and level.owns(out) and level.differs(out):
        raise ConfigError(
            f"spread: a result of shape {list(out.shape)} is each rank's own, and out_own says "
            "that it is one for all; psum, pmean or all_gather make one for all of many"
        )
    return out.inner if level.owns(out) else out  # type: ignore[attr-defined]
