"""The symbolic run of a program that is to be saved: loops and branches are followed as well, with
sizes as symbols inside of their bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compile.instruction import Instruction
from ..compile.sized import Unlike
from ..compile.sizes.sketch import Sketch
from ..compile.sizes.symbolic_run import SymbolicRun
from ..core.bodies import Body
from ..core.gate import Primitive
from ..core.tensor import Tensor
from ..symbolic import hinted
from .bodies import bodies_of, is_body_call


class Following(SymbolicRun):
    """A symbolic run in which bodies are staged, as they were in the capture."""

    staging = True

    def process(self, prim: Primitive, args: tuple, params: dict, proceed: object) -> Any:
        """Follow one operation; one with bodies becomes that of this run, which knows of sizes."""
        if not is_body_call(prim):
            return super().process(prim, args, params, proceed)
        ins = self.following(lambda known: alike(known, prim), prim.name)
        self.note(ins, args, params)
        noted = self.instructions.pop()
        arrays = [a.array if isinstance(a, Tensor) else a for a in args]
        results = self.result(prim, arrays, params)
        outs = tuple(self._output(r, v) for r, v in zip(results, ins.outputs, strict=True))
        _check_held(prim)
        metas = [(hinted(tuple(shape)), kind) for shape, kind in prim.results]  # type: ignore[attr-defined]
        prim.shape = lambda *given, **params: metas
        self.instructions.append(Instruction(prim, noted.args, noted.params, noted.outputs))
        return outs

    def pull(self, node: Any, g: object, wanted: tuple | None) -> tuple:
        """Derivatives are computed by operations of their own, as in the capture."""
        if node.seq <= self.start:
            raise Unlike("it runs backward through a graph that was made outside")
        found: tuple = node.run(g, True, wanted)
        return found


def alike(a: Primitive, b: Primitive) -> bool:
    """Whether two instructions with bodies do the same but for sizes."""
    if type(a) is not type(b):
        return False
    mine, others = bodies_of(a), bodies_of(b)
    return len(mine) == len(others) and all(map(_same, mine, others))


def _same(a: Body, b: Body) -> bool:
    if len(a.steps) != len(b.steps) or a.count != b.count or a.ends != b.ends:
        return False
    if [(hinted(tuple(s)), k) for s, k in a.metas] != [(hinted(tuple(s)), k) for s, k in b.metas]:
        return False
    for one, other in zip(a.steps, b.steps, strict=True):
        nested = is_body_call(one.prim) and alike(one.prim, other.prim)
        if not nested and one.prim is not other.prim:
            return False
    return True


def _check_held(prim: Primitive) -> None:
    for body in bodies_of(prim):
        held: Sequence[Tensor] = body.held
        if any(isinstance(t.array, Sketch) for t in held):
            raise Unlike("a body makes a tensor of sizes; make it outside of the body")
        for step in body.steps:
            if is_body_call(step.prim):
                _check_held(step.prim)


__all__ = ["Following", "alike"]
