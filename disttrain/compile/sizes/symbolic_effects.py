"""Effects in a symbolic run: followed as instructions, and not done.

Other ranks take no part in such a run, so it reaches none of them. What an effect would have done
is known from the capture: it wrote to tensors, whose shapes stay, or gave leaves their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ... import tree
from ...context import thread
from ...core.effects import Effect
from ...core.gate import Primitive
from ...core.node import AccumulateGrad
from ...core.tensor import Tensor, wrap
from ...symbolic import Symbolic
from ..effects import Gradients, Stored, gradients_of
from ..instruction import Instruction, Var
from ..sized import Unlike
from ..work import Work
from .sketch import Sketch


class Follower(Protocol):
    """What is needed of a symbolic run."""

    unlike: str | None

    def following(self, fits: Callable[[Primitive], bool], what: str) -> Instruction: ...
    def note(self, ins: Instruction, given: Sequence, params: dict) -> None: ...
    def sketch(self, var: Var) -> Sketch: ...


class SymbolicEffects:
    """Those of one symbolic run, in the place of a capture's ``Effects``."""

    def __init__(self, run: Follower) -> None:
        self.run = run
        self.walks: dict[int, list[Tensor]] = {}  # by id of a walk, gradients that it adds to
        self.keep: list[Any] = []
        self.rehearsed: list[Effect] = []

    def perform(
        self, name: str, effect: Effect, tensors: tuple[Tensor, ...], writes: tuple[int, ...]
    ) -> Any:
        """Follow one that is no gradient's."""
        if any(isinstance(leaf, Symbolic) for leaf in _parts(effect)):
            raise Unlike(f"{name} tells other ranks a size")
        if thread.walk is not None and not effect.alone:
            self._walk()
        ins = self._follow(name, tensors)
        self.rehearsed.append(effect)
        result = effect.rehearse([self.run.sketch(var) for var in ins.outputs])
        if result is not NotImplemented:
            return result
        if ins.outputs or ins.params["effect"].gave:
            raise Unlike(f"{name} gives what it has from other ranks")
        return None

    def end(self) -> None:
        """The run is over."""
        while self.rehearsed:
            self.rehearsed.pop().forget()

    def store(self, acc: AccumulateGrad, leaf: Tensor, g: Tensor) -> None:
        """A leaf takes its gradient in the way that it has."""
        olds = self._walk()
        given: tuple[Tensor, ...] = (g,)
        if not acc.elsewhere and leaf._grad is not None:
            given = (g, leaf._grad)
            olds.append(leaf._grad)
        stored = self._follow("store_gradient", given).params["effect"]
        if not isinstance(stored, Stored) or stored.leaf is not leaf:
            raise Unlike("leaves take their gradients in another order with sizes as symbols")

    def place(self, leaf: Tensor, g: Tensor) -> None:
        """As of a capture, whose gradients are spread over ranks."""
        raise Unlike("a gradient is spread over ranks")

    def apart(self, work: Callable[..., Any], *args: object) -> None:
        """The capture has done it."""

    def refuse(self, why: str) -> None:
        """Something is done that no replay would do."""
        raise Unlike(self.run.unlike or why)

    def _follow(self, name: str, tensors: Sequence[Tensor]) -> Instruction:
        ins = self.run.following(lambda p: isinstance(p, Work) and p.name == name, name)
        self.run.note(ins, tensors, ins.params)
        return ins

    def _walk(self) -> list[Tensor]:
        """The gradients to which the walk that is running adds."""
        walk: Any = thread.walk
        if id(walk) not in self.walks:
            self.walks[id(walk)] = []
            self.keep.append(walk)
            self._phase("begin_gradients", [])
            walk.callbacks.append(lambda: self._finish(walk))
        return self.walks[id(walk)]

    def _phase(self, name: str, olds: Sequence[Tensor]) -> None:
        """The beginning or the end of a walk. A capture adds gradients that it finds there only
        when the walk is over."""
        ins = self.run.following(lambda p: isinstance(p, Work) and p.name == name, name)
        self.run.note(ins, [*olds, *ins.args[len(olds) :]], ins.params)

    def _finish(self, walk: Any) -> None:
        self._phase("finish_gradients", self.walks[id(walk)])
        ins = self.run.following(lambda p: p is gradients_of, "gradients")
        self.run.note(ins, (), ins.params)
        known: Gradients = ins.params["effect"]
        for leaf, var in zip(known.leaves, ins.outputs, strict=True):
            leaf._grad = wrap(self.run.sketch(var))


def _parts(effect: Effect) -> Iterator[Any]:
    for value in vars(effect).values():
        yield from tree.leaves(value)


__all__ = ["SymbolicEffects"]
