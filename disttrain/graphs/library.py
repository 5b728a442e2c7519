"""A library that computes with Tensors, called by a program whose values are of another kind:
values change where one calls the other, and in a traced function a call is one operation."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from .. import tree
from ..autograd.cells import arrived, awaiting
from ..core.random import fork_rng
from ..errors import CaptureError
from .compiled import STAGING, Once
from .graph import CURRENT, outside


class Library:
    """A subclass says which code is the library's (``packages``, by the beginnings of modules'
    names), what values are on either side, and what is open while its code runs."""

    packages: ClassVar[tuple[str, ...]] = ()

    # --- what a subclass may say otherwise --------------------------------------------------------
    def inward(self, value: Any) -> Any:
        """A value of the program's for the library."""
        return value

    def outward(self, value: Any) -> Any:
        """A value of the library's for the program."""
        return value

    def is_value(self, value: Any) -> bool:
        """Whether ``value`` is one that an operation takes."""
        return False

    def tensor(self, value: Any) -> Any:
        """Such a value as what a graph records."""
        return value

    def running(self) -> Any:
        """What is open while code of the library runs."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def trial(self, owner: Any) -> Iterator[None]:
        """What is open while a call is tried on examples: it must change no state of ``owner``."""
        yield

    def ready(self, owner: Any) -> bool:
        """Whether ``owner`` has its state already; else a first call makes it."""
        return True

    def is_state(self, owner: Any, t: Any) -> bool:
        """Whether a Tensor is state of ``owner``'s, which calls may change."""
        return True

    def beside(self, owner: Any, values: Any) -> bool:
        """Whether values hold what operations do not show, or ``owner`` does after a call: then
        its Python runs at every call."""
        return False

    # --- both sides -------------------------------------------------------------------------------
    def calls(self, depth: int = 1) -> bool:
        """Whether the library's own code calls what asks."""
        return sys._getframe(depth + 1).f_globals.get("__name__", "").startswith(self.packages)

    def change(self, value: Any, out: bool) -> Any:
        """A structure of values for the program (``out``), or for the library."""
        return tree.map(self.outward if out else self.inward, value)

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Code of the library runs, outside of what is being traced."""
        with self.running(), outside():
            yield

    def entry(self, fn: Callable, kind: str, effect: bool = False) -> Callable:
        """``fn`` of the library for both sides. ``kind``: its operation's; ``effect``: it changes
        state alone."""

        @functools.wraps(fn)
        def entry(*args: Any, **kwargs: Any) -> Any:
            out = not self.calls()
            if CURRENT.get() is not None and out:
                return self.record(fn, kind, args, kwargs, effect)
            if out and awaiting() and not self.ready(args[0] if args else fn):
                with self.running(), fork_rng():
                    fn(*args, **kwargs)  # which makes its state
                arrived()
            with self.running():
                found = fn(*args, **kwargs)
            return self.change(found, out)

        return entry

    def taking(self, fn: Callable) -> Callable:
        """A method of the library that is given values of the program's, by whoever calls it."""

        @functools.wraps(fn)
        def entry(owner: Any, *args: Any) -> Any:
            return fn(owner, *self.change(args, False))

        return entry

    def keeping(self, fn: Callable) -> Callable:
        """``fn`` of the library, whose results are for the library, whoever calls."""
        return functools.wraps(fn)(lambda *args, **kwargs: self.change(fn(*args, **kwargs), False))

    def record(self, fn: Callable, kind: str, args: tuple, kwargs: dict, effect: bool) -> Any:
        """Write a call down as one operation, whose inputs are the values among its arguments."""
        graph = CURRENT.get()
        leaves, rebuild = tree.flatten((args, kwargs), with_none=True)
        at = [i for i, v in enumerate(leaves) if self.is_value(v)]
        held = [graph.inside(self.tensor(leaves[i])) for i in at]
        owner = args[0] if args else fn

        def plainly(*values: Any) -> Any:
            now = list(leaves)
            for i, v in zip(at, values, strict=True):
                now[i] = v
            given, words = rebuild(now)
            with self.apart():
                found = self.change(fn(*given, **words), False)
            if STAGING.get() and self.beside(owner, found):
                raise CaptureError("what is beside the results is Python's")
            return found

        once = plainly if effect else Once(plainly, functools.partial(self.is_state, owner))

        def call(*values: Any) -> Any:
            if CURRENT.get() is None:
                return (plainly if self.beside(None, values) else once)(*values)
            with self.trial(owner):
                return plainly(*values)

        if not effect and not self.ready(owner):
            call(*[t._value for t in held])  # which makes its state
            arrived()
        return graph.record(kind, call, held, examples=() if effect else None)
