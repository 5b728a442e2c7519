"""Effects: work that reaches beyond the tensors at hand (collectives, what leaves do with their
gradients), and that a capture repeats at the same place of every replay.

Who does such work says so here. Knows nothing of captures but that one may listen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from .. import tree
from ..context import thread
from ..errors import DisttrainError
from .tensor import Tensor

Fn = TypeVar("Fn", bound=Callable[..., Any])


class Effect:
    """One piece of such work. Called now, and again by each replay, on tensors over the memory that
    those lie in which it was given at first. ``alone``: it reaches nobody else, and is no part of
    the backward pass that is running. ``counts``: it counts the writes to what it writes to.
    ``gave``: its first call gave its caller something. ``quiet``: nobody waits for it, and it waits
    for nobody."""

    alone = counts = gave = quiet = False

    def __call__(self, *tensors: Tensor) -> Any:
        raise NotImplementedError

    def gives(self) -> Sequence[Tensor]:
        """The tensors that have got their memory by it. What uses them later uses its results."""
        return ()

    def parts(self) -> tuple[Effect, Effect] | None:
        """What begins it, and what waits for its end: two effects on its tensors, which belong to
        it in between. Ranks that do it in one piece meet both. None: it is one piece."""
        return None

    def joined(self, others: Sequence[Effect]) -> Effect | None:
        """It and ``others``, which come right behind it, in one: an effect on the tensors of all.
        Ranks that do them one by one meet it. None: they stay apart."""
        return None

    def rehearse(self, arrays: Sequence[Any]) -> Any:
        """What a first call gives its caller, where nothing is done and reached: the program runs
        once more without numbers. What ``gives`` would give has these ``arrays``. (A plain effect
        that gives something cannot.)"""
        return NotImplemented

    def forget(self) -> None:
        """Undo ``rehearse``, of all the last one first."""

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
        args, kwargs = self.given(tensors)
        return self.fn(*args, **kwargs)

    def given(self, tensors: Sequence[Any]) -> tuple[tuple, dict]:
        """The arguments, with these for tensors."""
        leaves = list(self.leaves)
        for i, t in zip(self.places, tensors, strict=True):
            leaves[i] = t
        return self.build(leaves)

    def parts(self) -> tuple[Effect, Effect]:
        begin = _Started(self)
        return begin, _Awaited(begin)

    def joined(self, others: Sequence[Effect]) -> Effect | None:
        """Where the function is done with the first of its arguments ``each`` in turn."""
        each = _EACH.get(self.fn)
        return _Joined(self, each) if each is not None and all(map(self._fits, others)) else None

    def _fits(self, other: Effect) -> bool:
        """Whether both have one tensor, their first argument, and the same arguments besides."""
        if not isinstance(other, Collective) or other.fn is not self.fn:
            return False
        if not self.places == other.places == [0] or len(self.leaves) != len(other.leaves):
            return False
        return all(
            a is b or (type(a) is type(b) and a == b)
            for a, b in zip(self.leaves, other.leaves, strict=True)
        )

    def __repr__(self) -> str:
        return f"<{self.fn.__name__}>"


class _Started(Effect):
    """The beginning of a collective. ``work``: what is to be waited for."""

    work: Any = None

    def __init__(self, of: Collective) -> None:
        self.of = of

    def __call__(self, *tensors: Tensor) -> None:
        args, kwargs = self.of.given(tensors)
        self.work = self.of.fn(*args, **kwargs, async_op=True)

    def end(self) -> Any:
        """Take what is to be waited for."""
        work, self.work = self.work, None
        return work

    def break_off(self) -> None:
        """Others wait for this rank's part; what they are told of its end they are told."""
        work = self.end()
        if work is not None:
            with suppress(DisttrainError):
                work.wait()

    def __repr__(self) -> str:
        return repr(self.of)


class _Awaited(Effect):
    def __init__(self, begin: _Started) -> None:
        self.begin = begin

    def __call__(self, *tensors: Tensor) -> None:
        self.begin.end().wait()

    def __repr__(self) -> str:
        return repr(self.begin)


class _Joined(Effect):
    """Several collectives in one, done by ``each`` on their tensors."""

    def __init__(self, first: Collective, each: Callable[..., Any]) -> None:
        self.first, self.each = first, each

    def __call__(self, *tensors: Tensor) -> None:
        args, kwargs = self.first.given((list(tensors),))
        self.each(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.first)


_EACH: dict[Callable[..., Any], Callable[..., Any]] = {}


def done_each_by(each: Callable[..., Any]) -> Callable[[Fn], Fn]:
    """Of a collective on one tensor: ``each`` does it on a list of tensors, in its place."""

    def known(fn: Fn) -> Fn:
        _EACH[fn] = each
        return fn

    return known


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
    "Again", "Effect", "aside", "captured", "done_each_by", "lasting", "not_repeated", "performed",
    "repeated",
]  # fmt: skip
