"""Loops and branches whose bodies were staged, run as one instruction each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..context import thread
from ..core.gate import Tracer
from ..core.tensor import Tensor
from ..core.types.device import CPU
from ..ops.functions.creation import create
from .branches import Switch
from .live_bodies import chosen, turned, turned_while
from .loops import NO_WAY_BACK, Scan, While
from .named import tracked, uses_axes
from .staging import Staged, stage


def staged(fn: Callable[..., Any], given: Sequence[Tensor]) -> Staged:
    """``fn`` of tensors such as ``given``."""
    return stage(fn, [t.meta() for t in given], given[0].device if given else CPU)


def run_scan(
    body: Staged, init: Sequence[Tensor], xs: Sequence[Tensor], length: int, reverse: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """What ``body(*carry, *x) -> (*carry, *y)`` carries at the end, and all y, stacked."""
    n = len(init)
    if tracked() or uses_axes(body.body.steps):
        return turned(body, init, xs, range(length)[:: -1 if reverse else 1])
    keep = thread.grad_enabled and any(map(is_followed, (*body.consts, *init, *xs)))
    scan = Scan(body.body, len(body.consts), n, length, reverse, keep)
    if not scan.count:
        outs = _without_arguments(scan)
    else:
        outs = list(scan(*body.consts, *init, *xs))
    return outs[:n], outs[n : len(body.results)]


def run_while(
    cond: Staged, body: Staged, init: Sequence[Tensor], no_way_back: str = NO_WAY_BACK
) -> list[Tensor]:
    """What ``body(*carry) -> carry`` carries when ``cond(*carry)`` does not hold any more. There is
    no way back through it, which a backward is told in these words."""
    if uses_axes((*cond.body.steps, *body.body.steps)):
        return turned_while(cond, body, init)
    loop = While(cond.body, body.body, len(cond.consts), len(body.consts), no_way_back)
    return list(loop(*cond.consts, *body.consts, *init))


def run_switch(
    index: Tensor, branches: Sequence[Staged], operands: Sequence[Tensor]
) -> list[Tensor]:
    """What the branch of this number gives (the first or the last, where it is out of range)."""
    if tracked() or any(uses_axes(b.body.steps) for b in branches):
        return chosen(index, branches, operands)
    consts = {id(c): c for b in branches for c in b.consts}
    places = {key: i for i, key in enumerate(consts)}
    count = len(consts)

    def of(branch: Staged) -> Any:
        own = [places[id(c)] for c in branch.consts]

        def fn(*values: Tensor) -> list:
            return branch.body(*[values[i] for i in own], *values[count:])

        return fn

    metas = [t.meta() for t in (*consts.values(), *operands)]
    bodies = [stage(of(branch), metas, closed=True).body for branch in branches]
    return list(Switch(bodies)(index, *consts.values(), *operands))


def is_followed(value: Any) -> bool:
    """Whether a tape may want what is computed from ``value``."""
    while isinstance(value, Tensor):
        if value.requires_grad or is_followed(getattr(value, "tangent", None)):
            return True
        if not isinstance(value, Tracer):
            return False
        value = value.inner
    return False


def is_staging() -> bool:
    """Whether what runs now is being written down, so that both branches are to be."""
    return any(getattr(interp, "staging", False) for interp in thread.stack)


def _without_arguments(scan: Scan) -> list[Tensor]:
    """The results of a loop that nothing goes into; through the gate, as an instruction."""
    return list(Given(scan)(create.zeros(())))


class Given(Scan):
    """A scan with one argument that it does not use."""

    def __init__(self, scan: Scan) -> None:
        body = stage(lambda *_: scan.body(), [((), create.zeros(()).meta()[1])], closed=True).body
        super().__init__(body, 1, 0, scan.length, scan.reverse)
