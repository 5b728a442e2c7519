"""Captures for sizes that change: a capture is generalized by a symbolic run of its program.

Nothing is computed, written or drawn by that run, and what it does to tensors from outside is put
back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ... import context, tree
from ...context import thread
from ...core.tensor import Tensor
from ...steps import SLOT
from ...symbolic import Scope
from ..capture import Capture
from ..guards.arguments import with_numbers
from ..guards.holders import Holder
from ..joint import Joint, differentiate
from ..sized import Unlike, annotate
from .functions import replaced
from .kept import Kept, containers
from .symbolic_effects import SymbolicEffects
from .symbolic_run import Hashed, Sizes, SymbolicRun

_STATE = ("_node", "_st", "_gen", "_view", "_former", "_grad", "_retains", "_idle", "array")


class Found(NamedTuple):
    """A capture for other sizes, too: where its symbols stand, and what must hold of them;
    ``fixed``: sizes that can be no symbols, with the reason."""

    scope: Scope
    sizes: Sizes
    fixed: list[tuple[Sizes, str]]


def _fits(recorder: Capture) -> None:
    """Raise ``Unlike`` for captures that no symbolic run can follow."""
    given = recorder.given
    if any(t.array.__class__ is not np.ndarray or type(t) is not Tensor for t in given):
        raise Unlike("arguments are no plain tensors of the host")


@contextmanager
def _put_back(recorder: Capture) -> Iterator[dict[int, Any]]:
    """What a run does to tensors from outside is undone; the gradients that leaves have."""
    tensors = {id(t): t for t, *_ in recorder.old.values()}
    tensors.update((id(t), t) for t in recorder.captured)
    tensors.update((id(leaf), leaf) for leaf, _ in recorder.entry)
    grads = {id(leaf): leaf._grad for leaf, _ in recorder.entry}
    tensors.update((id(g), g) for g in grads.values() if g is not None)
    for t in list(tensors.values()):
        while t._view is not None:
            t = t._view[0]
            tensors[id(t)] = t
    states = [(t, [getattr(t, name) for name in _STATE]) for t in tensors.values()]
    cells = {id(t._st): (t._st, dict(t._st.__dict__)) for t in tensors.values() if t._st}
    steps = thread.rank.slots.pop(SLOT, None)
    for leaf, grad in recorder.entry:
        leaf._grad = grad
    try:
        yield grads
    finally:
        if steps is not None:
            thread.rank.slots[SLOT] = steps
        for t, state in states:
            for name, was in zip(_STATE, state, strict=True):
                if getattr(t, name) is not was:
                    setattr(t, name, was)
        for cell, kept in cells.values():
            cell.__dict__.clear()
            cell.__dict__.update(kept)


@contextmanager
def ending(effects: SymbolicEffects) -> Iterator[None]:
    """What effects are asked for in the block is undone after it."""
    try:
        yield
    finally:
        effects.end()


def generalize(
    recorder: Capture,
    fn: Callable[..., Any],
    args: tuple,
    kwargs: dict,
    leaves: list,
    joint: Joint | None,
    sizes: Sizes,
    holders: Iterable[Holder] = (),
    kind: type[SymbolicRun] = SymbolicRun,
) -> Found:
    """Let a capture, of ``fn(*args, **kwargs)`` with these results, hold expressions of ``sizes``.
    Raises ``Unlike`` where it cannot; then the capture is as it was. ``holders``: what the program
    may write to; ``kind``: of the run."""
    _fits(recorder)
    fixed: list[tuple[Sizes, str]] = []
    while True:
        try:
            scope = _followed(recorder, fn, args, kwargs, leaves, joint, sizes, holders, kind)
            return Found(scope, sizes, fixed)
        except Hashed as of:
            fixed.append((of.places, of.why))
            sizes = [place for place in sizes if place not in of.places]
            if not sizes or not of.places:
                raise


def _followed(
    recorder: Capture,
    fn: Callable[..., Any],
    args: tuple,
    kwargs: dict,
    leaves: list,
    joint: Joint | None,
    sizes: Sizes,
    holders: Iterable[Holder],
    kind: type[SymbolicRun],
) -> Scope:
    """One symbolic run."""
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            recorder.var(leaf)
    list(recorder._grads())
    numbers: list[float] = []
    with_numbers((args, kwargs), numbers.append)
    run = kind(recorder, joint.sweeps if joint is not None else [], sizes, numbers)
    places = {id(t): s for t, s in zip(recorder.given, run.given, strict=True)}
    args, kwargs = tree.map(
        lambda x: places.get(id(x), x) if isinstance(x, Tensor) else x, (args, kwargs)
    )
    given = iter(run.numbers.values())
    args, kwargs = with_numbers((args, kwargs), lambda n: next(given))
    holders = [*holders]
    second, kept = None, Kept((*holders, *containers((args, kwargs))))
    with kept, _put_back(recorder) as grads:
        with ending(run.effects), replaced(holders), context.interpreter(run):
            found = tree.leaves(fn(*args, **kwargs))
            run._take_windows()
            parts = run.check_results(leaves, found)
            run.check_gradients(grads)
            if joint is not None and joint.freed is None:
                second, _ = differentiate(run, found)  # type: ignore[arg-type]
    run._take_windows()
    run.scope.sketch = run.scope.hashed = None
    if kept.changed is not None:
        raise Unlike(f"it changes {kept.changed}")
    if run.unlike is not None:
        raise Unlike(run.unlike)
    if run.at != len(run.expected):
        raise Unlike(f"it ends before {run.expected[run.at].prim.name} with sizes as symbols")
    shown: Any = None if joint is None else annotate(joint.shapes, tuple(
        found[at].meta() for at in joint.places))  # fmt: skip
    if joint is not None and joint.freed is None:
        _check_sweeps(joint, second, run)
    run.apply(leaves)
    leaves[:] = parts
    if joint is not None:
        joint.shapes = shown
        for sweep, again in zip(joint.sweeps, second.sweeps if second else (), strict=False):
            sweep.instructions = again.instructions
    return run.scope


def _check_sweeps(joint: Joint, second: Joint | None, run: SymbolicRun) -> None:
    """That backward leads where it led."""
    if second is None or second.freed is not None:
        raise Unlike("its result has no graph with sizes as symbols")
    if [kind for kind, _ in joint.ends] != [kind for kind, _ in second.ends] or any(
        a is not b for (_, a), (_, b) in zip(joint.ends, second.ends, strict=True)
    ):
        raise Unlike("gradients arrive otherwise with sizes as symbols")
    for a, b in zip(joint.sweeps, second.sweeps, strict=True):
        ends = [
            (x and run._root(x), y and run._root(y)) for x, y in zip(a.ends, b.ends, strict=True)
        ]
        if a.results != b.results or any(x != y for x, y in ends):
            raise Unlike("gradients are others with sizes as symbols")
