"""Effects: work that reaches beyond the tensors at hand (collectives, what leaves do with their
gradients), and that a capture repeats at the same place of every replay.

Who does such work says so here. Knows nothing of captures but that one may listen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .. import tree
from ..context import thread
from .tensor import Tensor

Fn = TypeVar("Fn", bound=Callable[..., Any])


class Effect:
    """One piece of such work. Called now, and again by each replay, on tensors over the memory that
    those lie in which it was given at first. ``alone``: it reaches nobody else, and is no part of
    the backward pass that is running. ``counts``: it counts the writes to what it writes to.
    ``gave``: its first call gave its caller something."""

    alone = counts = gave = False

    def __call__(self, *tensors: Tensor) -> Any:
        raise NotImplementedError

    def gives(self) -> Sequence[Tensor]:
        """The tensors that have got their memory by it. What uses them later uses its results."""
        return ()

    def settle(self, results: tuple) -> None:
        """A replay is through, and gives ``results``."""

    def break_off(self) -> None:
        """A replay has raised, before this or after it."""


def performed(
    name: str, effect: Effect, tensors: Sequence[Tensor] = (), writes: Sequence[int] = ()
) -> Any:
    """Call ``effect`` on ``tensors``; to those numbered in ``writes`` it writes. Its result."""
    recorder = _recorder()
    if recorder is None:
        return effect(*tensors)
    return recorder.perform(name, effect, tuple(tensors), tuple(writes))


def captured() -> bool:
    """Whether effects of this thread are repeated by a capture that runs."""
    return _recorder() is not None


def aside(work: Callable[..., Any], *args: object) -> None:
    """Do what is no part of a program: it is done in a first call only, or where it is needed."""
    recorder = _recorder()
    if recorder is None:
        work(*args)
    else:
        recorder.apart(work, *args)


def not_repeated(why: str) -> None:
    """Tell the capture that runs on this thread, if one does, that no replay can stand for what
    is done now."""
    recorder = _recorder()
    if recorder is not None:
        recorder.refuse(why)


def lasting(fn: Fn) -> Fn:
    """Let ``fn``, which reaches nobody, tell what a rank is (its number, its groups): captures take
    what it tells for the program's, and every replay looks whether it would be told the same."""

    @functools.wraps(fn)
    def told(*args: Any, **kwargs: Any) -> Any:
        stack = thread.stack
        recorder = getattr(stack[0], "effects", None) if stack else None
        if recorder is None:
            return fn(*args, **kwargs)
        return recorder.rely(functools.partial(fn, *args, **kwargs))

    return told  # type: ignore[return-value]


def _recorder() -> Any:
    """The effects of the capture that runs on this thread, where nothing else is around it."""
    stack = thread.stack
    return getattr(stack[0], "effects", None) if len(stack) == 1 else None


class Again(Effect):
    """Tensors under other names: what is computed of them is computed once more."""

    alone = True
    now: Sequence[Tensor] = ()

    def __call__(self, *tensors: Tensor) -> None:
        self.now = tensors

    def gives(self) -> Sequence[Tensor]:
        now, self.now = self.now, ()
        return now

    def __repr__(self) -> str:
        return "<once more>"


class Collective(Effect):
    """A call of a function that reaches other ranks. ``build`` makes its arguments of ``leaves``,
    some of which are tensors."""

    def __init__(self, fn: Callable[..., Any], leaves: list[Any], build: Callable[..., Any]):
        self.fn, self.build = fn, build
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.leaves = leaves
        for i in self.places:
            leaves[i] = None

    def __call__(self, *tensors: Tensor) -> Any:
        leaves = list(self.leaves)
        for i, t in zip(self.places, tensors, strict=True):
            leaves[i] = t
        args, kwargs = self.build(leaves)
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.fn.__name__}>"


def repeated(fn: Callable[..., Any], started: bool, *args: Any, **kwargs: Any) -> bool:
    """Whether a capture has called ``fn`` with these arguments, and will repeat it: it reaches
    other ranks, and writes to the tensors in its first one. ``started``: it is not to wait for what
    it does, which captures cannot repeat."""
    if started or _recorder() is None:
        return False
    leaves, build = tree.flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    count = len([leaf for leaf in tree.leaves(args[0]) if isinstance(leaf, Tensor)])
    performed(fn.__name__, Collective(fn, leaves, build), tensors, range(count))
    return True


__all__ = [
    "Again", "Effect", "aside", "captured", "lasting", "not_repeated", "performed", "repeated",
]  # fmt: skip
