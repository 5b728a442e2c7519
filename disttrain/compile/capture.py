"""The capture interpreter: runs a program eagerly and records what it does.

Everything that goes through the gate is recorded: forward, backward (the engine walks with Tensors
while an interpreter is active), and the optimizer's update rules, which are mutating primitives.
What does not go through the gate cannot be: a number read from a tensor that the program made
(``item()``, ``if``, numpy) would be frozen into the graph, so reading it is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import context, trace, tree
from ..core.gate import Primitive
from ..core.tensor import Tensor
from ..errors import CaptureError
from .graph import Graph, Instruction, Var


class Capture:
    """Records instructions while it is on the interpreter stack."""

    dynamic = True
    level = -1

    def __init__(self, inputs: list[Tensor], names: dict[int, str]) -> None:
        self.vars: dict[int, Var] = {}
        self.keep: list[Tensor] = []  # so that no id is used twice
        self.metas: dict[Var, tuple] = {}
        self.captured: list[Tensor] = []
        self.names = names
        self.instructions: list[Instruction] = []
        self.count = 0
        self.inputs = tuple(self._define(t) for t in inputs)

    def __str__(self) -> str:
        return "capture"

    def _define(self, t: Tensor) -> Var:
        var = Var("v", self.count)
        self.count += 1
        self.vars[id(t)] = var
        self.keep.append(t)
        self.metas[var] = t.meta()
        return var

    def var(self, t: Tensor) -> Var:
        """The name of a tensor; one that is not known yet comes from outside. Another tensor over
        the whole memory of a known one (a detached alias) is the same value."""
        found = self.vars.get(id(t))
        if found is None:
            found = self.vars.get(("memory", id(t.array)))  # type: ignore[arg-type]
        if found is None:
            found = Var("c", len(self.captured))
            self.captured.append(t)
            self.metas[found] = t.meta()
        self.vars[id(t)] = found
        self.vars.setdefault(("memory", id(t.array)), found)  # type: ignore[arg-type]
        self.keep.append(t)
        return found

    def made(self, t: Tensor) -> bool:
        """Whether the captured program made ``t``."""
        memory = ("memory", id(t.array))
        found = self.vars.get(id(t)) or self.vars.get(memory)  # type: ignore[arg-type]
        return found is not None and found.kind == "v"

    def on_read(self, t: Tensor) -> None:
        """A number is read from ``t``."""
        if self.made(t):
            raise CaptureError(
                f"capture: the value of a tensor of shape {list(t.shape)} is read at "
                f"{trace.call_site(3)} (item(), bool(), numpy() or the like); a replay would use "
                "today's value for ever. Use tensor operations such as dt.where, or read it outside"
            )

    def process(self, prim: Primitive, args: tuple, params: dict, proceed: Callable) -> Any:
        names = tuple(self.var(a) if isinstance(a, Tensor) else a for a in args)
        out = proceed(prim, args, params)
        if prim.mutates:
            self.instructions.append(Instruction(prim, names, params, ()))
            return out
        outs = out if isinstance(out, tuple) else (out,)
        results = []
        for o in outs:
            var = self._define(o)
            self.vars[("memory", id(o.array))] = var  # type: ignore[index]
            results.append(var)
        self.instructions.append(Instruction(prim, names, params, tuple(results)))
        return out

    def graph(self, outputs: list) -> Graph:
        """The recorded program, with these results."""
        outs = tuple(self.var(o) if isinstance(o, Tensor) else o for o in outputs)
        names = tuple(
            self.names.get(id(t)) or f"{'leaf' if t.is_leaf else 'tensor'} from outside"
            for t in self.captured
        )
        return Graph(
            self.inputs, tuple(self.captured), names, tuple(self.instructions), outs, self.metas
        ).verify()


def capture(fn: Callable, names: dict[int, str] | None = None) -> Callable:
    """``capture(fn)(*args)`` runs ``fn`` once and gives (its result, the ``Graph`` of what it did).

    Tensors among ``args`` (nested ones too) are the graph's inputs; everything else that ``fn``
    touches is kept by reference. ``names`` (id of a tensor -> text) is for the printed graph.
    """

    def captured(*args: Any, **kwargs: Any) -> tuple[Any, Graph]:
        leaves = tree.leaves((args, kwargs))
        recorder = Capture([x for x in leaves if isinstance(x, Tensor)], names or {})
        with context.interpreter(recorder):
            result = fn(*args, **kwargs)
        return result, recorder.graph(tree.leaves(result))

    return captured
