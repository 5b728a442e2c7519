"""From a captured graph to nodes without writes: each write makes a new value, and what is seen of
its memory under other names is seen anew from that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ..compile.instruction import Instruction, Var, constant, made
from ..compile.memory import window
from ..compile.questions import lies
from ..compile.sized import SIZED
from ..core.gate import Primitive
from ..core.random import default_generator
from ..core.tensor import Tensor
from ..errors import CaptureError
from ..ops.primitives.elementwise import cast
from ..ops.primitives.views import expand
from ..ops.primitives.write import assign, view_write
from ..symbolic import Symbolic
from . import vocabulary
from .bodies import is_body_call, params_of
from .recording import Recorded, Site
from .sizes import Size, renamed
from .values import Name, Node, Value


class Lowered:
    """What comes of it. ``writes``: what is to be written at the end, by the captured value's name
    and the new value's."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.writes: list[tuple[str, Name]] = []


class Lowering:
    """One graph. ``given``: names of its inputs and of tensors from outside, by their Vars."""

    def __init__(self, recorded: Recorded, given: Mapping[Var, str], symbols: Mapping[str, str]):
        self.recorded, self.graph, self.symbols = recorded, recorded.graph, symbols
        self.out, self.given = Lowered(), given
        self.now: dict[Var, str] = {}
        self.views: dict[Var, tuple[Var, Primitive | None, dict, int | None]] = {}
        self.count: dict[Var, int] = {}  # of writes, by what owns memory
        self.seen: dict[Var, int] = {}  # how many of them a value's name knows of
        self.site = Site("", "")
        for var, name in given.items():
            self._settle(var, name)
            self.out.values[name] = Value(name, *self._meta(var))

    def _meta(self, var: Var) -> tuple[tuple, np.dtype]:
        shape, kind = self.graph.metas[var]
        return self.plain(tuple(shape)), np.dtype(kind)

    def _settle(self, var: Var, name: str) -> None:
        self.now[var], self.seen[var] = name, self.count.get(self._root(var), 0)

    def plain(self, x: Any) -> Any:
        """``x`` with sizes as a program has them."""
        if type(x) in SIZED or type(x) is Symbolic:
            return Size(renamed(x.text, self.symbols))
        if isinstance(x, (tuple, list)):
            parts = [self.plain(y) for y in x]
            return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
        if isinstance(x, dict):
            return {k: self.plain(v) for k, v in x.items()}
        if isinstance(x, slice):
            return slice(*map(self.plain, (x.start, x.stop, x.step)))
        if x is default_generator:
            return vocabulary.GENERATOR
        return x.item() if isinstance(x, (np.bool_, np.number)) else x

    # --- instructions -----------------------------------------------------------------------
    def run(self) -> Lowered:
        """All of the graph."""
        kept = [ins for ins in self.graph.instructions if ins.prim is not lies]
        sites = self.recorded.sites
        makers = len(kept) - len(sites)
        for i, ins in enumerate(kept):
            self.site = sites[i - makers] if i >= makers else Site("", "")
            self._take(ins)
        for var in (*self.graph.inputs, *self.graph.outside()):
            if self.count.get(var):
                self.out.writes.append((self.given[var], self.value(var)))
        return self.out

    def _take(self, ins: Instruction) -> None:
        if ins.prim is assign:
            self._write(ins.args[0], ins.args[1])
        elif ins.prim is window:
            self._look(ins)
        elif ins.prim is constant:
            self._hold(ins.outputs[0], ins.params["value"])
        elif ins.prim is made:
            self._make(ins)
        else:
            self._compute(ins)

    def _compute(self, ins: Instruction) -> None:
        args = tuple(self.value(a) if isinstance(a, Var) else self.plain(a) for a in ins.args)
        prim = getattr(ins.prim, "of", ins.prim)
        if is_body_call(prim):
            name, params = params_of(prim, self._named, self.plain, self._held)
        else:
            name, params = self._named(prim), self.plain(ins.params)
            if prim is view_write:
                chain = [(self._named(p), how) for p, how in params["chain"]]
                params = {"chain": tuple(chain)}
        names = self._emit(name, args, params, [self._meta(o) for o in ins.outputs])
        for i, (o, found) in enumerate(zip(ins.outputs, names, strict=True)):
            if prim.view and self._shares(o, ins.args[0]):
                self.views[o] = ins.args[0], prim, params, i if prim.multi else None
            self._settle(o, found)

    def _shares(self, out: Var, source: Var) -> bool:
        a, b = (self.recorded.arrays.get(v) for v in (out, source))
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and (
            np.may_share_memory(a, b)
        )  # fmt: skip

    def _look(self, ins: Instruction) -> None:
        """Memory under another name: all of it, as it is."""
        (root,), (out,), how = ins.args, ins.outputs, ins.params
        shape, kind = self.graph.metas[root]
        whole = how["strides"] is None or how["strides"] == how["within"]
        if how["offset"] or not whole or how["dtype"] != kind or len(how["shape"]) != len(shape):
            self._refuse("it looks at a part of a tensor's memory under another name")
        self.views[out] = root, None, {}, None
        self._settle(out, self.value(root))

    def _hold(self, var: Var, array: np.ndarray) -> None:
        self._settle(var, self._constant(array))

    def _held(self, t: Tensor) -> str:
        return self._constant(t.array)

    def _constant(self, array: np.ndarray) -> str:
        name = f"%c{len(self.out.constants)}"
        self.out.constants[name] = array
        self.out.values[name] = Value(name, array.shape, array.dtype)
        return name

    def _make(self, ins: Instruction) -> None:
        make, given = ins.params["make"], self.plain(ins.params["given"])
        found = vocabulary.recipe(make, given)
        found = None if found is None else (found[0], self.plain(found[1]))
        if found is None:
            shown = getattr(make, "__qualname__", repr(make))
            self._refuse(f"a tensor is made of sizes by {shown}, which no file can name")
        name, params = found
        self._settle(ins.outputs[0], self._emit(name, (), params, [self._meta(ins.outputs[0])])[0])

    def _named(self, prim: Primitive) -> str:
        name = vocabulary.name_of(prim)
        if name is None:
            why = "writes to what it is given" if prim.mutates else "no file can name"
            self._refuse(f"it does {prim.name}, which {why}")
        return name

    def _refuse(self, why: str) -> NoReturn:
        where = f" (in {self.site.module})" if self.site.module else ""
        raise CaptureError(f"export: {why}, at {self.site.line or 'an unknown line'}{where}")

    def _emit(self, name: str, args: tuple, params: dict, metas: list[tuple]) -> tuple[Name, ...]:
        outs = tuple(Name(f"%{len(self.out.values) + i}") for i in range(len(metas)))
        for out, (shape, kind) in zip(outs, metas, strict=True):
            self.out.values[out] = Value(out, shape, kind)
        self.out.nodes.append(Node(name, args, params, outs, *self.site))
        return outs

    # --- memory -----------------------------------------------------------------------------
    def _root(self, var: Var) -> Var:
        while var in self.views:
            var = self.views[var][0]
        return var

    def value(self, var: Var) -> Name:
        """The name of what ``var`` is now."""
        if self.seen[var] != self.count.get(self._root(var), 0):
            source, prim, params, part = self.views[var]
            name = self.value(source)
            if prim is not None:
                if part is not None:
                    assert prim.part is not None
                    prim, params = prim.part(params, part)
                name = self._emit(self._named(prim), (name,), params, [self._meta(var)])[0]
            self._settle(var, name)
        return Name(self.now[var])

    def _write(self, target: Var, source: Any) -> None:
        value = self.value(source) if isinstance(source, Var) else self.plain(source)
        chain: list[tuple[str, dict]] = []
        var = target
        while var in self.views:
            var, prim, params, part = self.views[var]
            if prim is not None:
                if part is not None:
                    assert prim.part is not None
                    prim, params = prim.part(params, part)
                chain.insert(0, (self._named(prim), params))
        meta = self._meta(var)
        if chain:
            args = (self.value(var), value)
            new = self._emit("view_write", args, {"chain": tuple(chain)}, [meta])[0]
        else:
            new = self._fitted(value, source, meta)
        self.count[var] = self.count.get(var, 0) + 1
        self._settle(var, new)
        if target is not var and not chain:
            self._settle(target, new)

    def _fitted(self, value: Any, source: Any, meta: tuple) -> Name:
        """What is written over all of a tensor, in its shape and type."""
        shape, kind = meta
        if not isinstance(source, Var):
            params = {"shape": shape, "value": value, "dtype": kind, "order": None}
            return self._emit("full", (), params, [meta])[0]
        own_shape, own_kind = self._meta(source)
        if own_kind != kind:
            value = self._emit(cast.name, (value,), {"dtype": kind}, [(own_shape, kind)])[0]
        if own_shape != shape:
            value = self._emit(expand.name, (value,), {"shape": shape}, [meta])[0]
        return Name(value)


# --- after it -------------------------------------------------------------------------------------
def needed(nodes: list[Node], ends: set[str], effect: Callable[[Node], bool]) -> list[Node]:
    """The nodes that results depend on, and those with effects."""
    wanted, kept = set(ends), []
    for node in reversed(nodes):
        if effect(node) or not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    return kept[::-1]


def named(
    nodes: list[Node], values: dict[str, Value], taken: set[str]
) -> tuple[list[Node], dict[str, str]]:
    """Nodes whose results have readable names, that stay when the program is made again; and the
    new names of old ones."""
    new: dict[str, str] = {}
    counts: dict[str, int] = {}
    out = []
    for node in nodes:
        base = node.primitive.strip("_")
        for o in node.outputs:
            while True:
                n = counts.get(base, 0)
                counts[base] = n + 1
                name = base if n == 0 else f"{base}_{n}"
                if name not in taken:
                    break
            taken.add(name)
            new[o] = name
        args = tuple(Name(new.get(a, a)) if isinstance(a, Name) else a for a in node.args)
        out.append(replace(node, args=args, outputs=tuple(new[o] for o in node.outputs)))
    return out, new


__all__ = ["Lowered", "Lowering", "named", "needed"]
