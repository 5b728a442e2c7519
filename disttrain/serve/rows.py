"""Whether rows of a saved program leave each other alone, read from its operations.

A named size is followed from the inputs on: where a value has it, its rows lie along one dimension,
each made of the same row of the inputs. How an operation may be cut in pieces (``ops.layouts``)
says what becomes of that dimension. Knows shapes, and runs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..export import Name, Node, Program
from ..export.running import primitive
from ..export.sizes import evaluated, sizes_in
from ..ops.layouts import Layout, layout_of

_ROWS = 1_000_003  # a prime, so that no other size is a multiple of it
_OTHERS = 3
FREE, MIXED, UNKNOWN = "free", "mixed", "unknown"  # of no input; of several rows; not known
# Rules that ask for whole dimensions to be safe, though rows may well be for themselves.
_CAREFUL = frozenset({"boundary", "put", "reshape", "view_write"})

State = int | str  # the dimension that rows lie along, or one of the above


def apart(program: Program, batch: str) -> bool | None:
    """Does each row of the results, along their first dimension, come from the same row of all
    inputs? None: not every operation says so."""
    sizes = {name: max(dim.min, _OTHERS) for name, dim in program.dims.items()} | {batch: _ROWS}
    following = _Following(program, batch, sizes)
    found = [following.states[name] for name in program.results]
    if any(state not in (0, UNKNOWN) for state in found):
        return False
    return None if UNKNOWN in found else True


class _Following:
    """``states``: by the names of values."""

    def __init__(self, program: Program, batch: str, sizes: dict[str, int]) -> None:
        self.batch, self.sizes = batch, sizes
        self.constants = dict(program.tensors())
        self.states: dict[str, State] = dict.fromkeys(self.constants, FREE)
        self.shapes: dict[str, tuple] = {n: tuple(t.shape) for n, t in self.constants.items()}
        self.kinds = {n: t.array.dtype for n, t in self.constants.items()}
        for name, value in program.values.items():
            self.shapes[name], self.kinds[name] = value.shape, value.dtype
        for value in program.inputs:
            self.shapes[value.name], self.kinds[value.name] = value.shape, value.dtype
            self.states[value.name] = 0
        for node in program.nodes:
            self._follow(node)

    def _follow(self, node: Node) -> None:
        given = [self.states[name] for name in node.inputs]
        states = self._states(node, given)
        for name, state in zip(node.outputs, states, strict=True):
            if given and set(given) != {FREE} and not self._has_rows(self.shapes[name]):
                state = MIXED  # of all rows there is one value, whatever made it
            self.states[name] = state

    def _states(self, node: Node, given: list[State]) -> list[State]:
        count = len(node.outputs)
        if MIXED in given or UNKNOWN in given:
            return [MIXED if MIXED in given else UNKNOWN] * count
        if set(given) <= {FREE}:
            return [self._made(node)] * count
        try:
            prim, params = primitive(node, dict(node.params), self.sizes, self.constants)
            numbers = evaluated(params, self.sizes)
            layout = layout_of(prim, [self._stand_in(a) for a in node.args], numbers)
        except Exception:  # of a rule that was made for arrays
            return [UNKNOWN] * count
        if prim.random or not isinstance(layout, Layout):
            return [UNKNOWN] * count
        if (len(layout.ins), len(layout.outs)) != (len(node.args), count):
            return [UNKNOWN] * count
        others = {k: v for k, v in node.params.items() if k not in layout.shapes}
        if self._has_rows((node.args, others)):  # what is computed depends on how many there are
            return [MIXED] * count
        return self._moved(node, layout)

    def _made(self, node: Node) -> State:
        """What is made of no input: alike for each row, unless it knows how many there are."""
        repeats = node.primitive in ("expand", "full")
        if self._has_rows((node.args, {k: v for k, v in node.params.items() if k != "shape"})):
            return MIXED
        along = [d for d, n in enumerate(self.shapes[node.outputs[0]]) if self._has_rows(n)]
        if self._has_rows(node.params) and not (repeats and len(along) == 1):
            return MIXED
        return along[0] if along else FREE

    def _moved(self, node: Node, layout: Layout) -> list[State]:
        count = len(node.outputs)
        names = set()
        for arg, dims in zip(node.args, layout.ins, strict=True):
            state = self.states[arg] if isinstance(arg, Name) else FREE
            if isinstance(state, int):
                names.add(dims[state])
        if len(names) != 1 or None in names:
            return [UNKNOWN if node.primitive in _CAREFUL else MIXED] * count
        (name,) = names
        if layout.even.get(name, _ROWS) % _ROWS:
            return [UNKNOWN if node.primitive in _CAREFUL else MIXED] * count
        for arg, dims in zip(node.args, layout.ins, strict=True):
            if dims is not None and name in dims and self.states[arg] != dims.index(name):
                return [MIXED] * count
        return [dims.index(name) if name in dims else MIXED for dims in layout.outs]

    def _has_rows(self, where: Any) -> bool:
        return any(self.batch in size.names for size in sizes_in(where))

    def _stand_in(self, arg: Any) -> Any:
        if not isinstance(arg, Name):
            return evaluated(arg, self.sizes)
        shape = evaluated(tuple(self.shapes[arg]), self.sizes)
        return np.broadcast_to(np.zeros((), self.kinds[arg]), shape)
