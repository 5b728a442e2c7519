"""From a program's nodes to a model's: each by its rule, or as part of a whole function.

What has no counterpart is collected, and told together at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import ExportError
from ...export import Graph, Name, Program, vocabulary
from ...export.sizes import sizes_in
from . import rules
from .functions import Functions
from .model import pruned, renamed
from .rules import pairs
from .types import Ref, Unmapped, element_type, is_number
from .writer import Op, Writer

TABLE = rules.RULES
_TRIED = 200  # sizes up to which it is tried how many fit
_MOST = 1 << 20  # bytes of constants that are computed here


@dataclass(frozen=True)
class Problem:
    """A node that has no counterpart."""

    primitive: str
    module: str
    line: str
    why: str

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        at = f" ({self.line})" if self.line else ""
        return f"{self.primitive}{where}{at}: {self.why}"


class Conversion:
    """Goes over a graph of a program, and writes it by ``w``. ``env``: what is known under the
    program's names. ``fold``: whether what is made of constants alone becomes a constant."""

    def __init__(
        self, graph: Graph, w: Writer, env: Mapping[str, Ref], fold: bool = True,
        problems: list[Problem] | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.w, self.env, self.fold = graph, w, dict(env), fold
        self.problems: list[Problem] = [] if problems is None else problems
        self.renamed: dict[str, str] = {}
        self.lates: dict[str, Callable[[], Any]] = {}
        self.used = needed(graph)
        self.functions = Functions(graph, self.w, self.value)

    def run(self) -> None:
        """Write all nodes that results need."""
        for node in self.graph.nodes:
            self.lates = {}
            if not self.used.isdisjoint(node.outputs):
                self._node(node)

    def _node(self, node: Any) -> None:
        w, before = self.w, len(self.w.ops)
        w.module, w.line = node.module, node.line
        values = [self.graph.values[o] for o in node.outputs]
        w.outs = [v if i == 0 or v.name in self.used else None for i, v in enumerate(values)]
        w.convert = self._inner
        w.alone = len(node.outputs) == 1 or self.used.isdisjoint(node.outputs[1:])
        try:
            found = self._folded(node)
            if found is None:
                found = self.functions.find(node)
            if found is None:
                found = self._by_rule(node)
            self._bind(node, found, before)
        except Unmapped as why:
            self._problem(node, str(why))

    def _problem(self, node: Any, why: str) -> None:
        """Note a node that has no counterpart; what uses it goes on."""
        self.problems.append(Problem(node.primitive, node.module, node.line, why))
        for o in node.outputs:
            value = self.graph.values[o]
            self.env[o] = Ref(o, np.dtype(value.dtype), tuple(value.shape))

    def _by_rule(self, node: Any) -> Any:
        args = [self.value(a) for a in node.args]
        ends = any(np.dtype(self.graph.values[o].dtype).kind == "c" for o in node.outputs)
        table = pairs.PAIRS if ends or any(map(pairs.is_complex, args)) else TABLE
        if node.primitive not in table:
            kind = " for complex numbers" if table is not TABLE else ""
            raise Unmapped(f"it has no counterpart in ONNX{kind}")
        return table[node.primitive](self.w, *args, **node.params)

    def _inner(self, graph: Graph, w: Writer, refs: Sequence[Ref], names: Sequence[str]) -> list:
        """A graph inside of a node, with ``refs`` for its inputs: its results."""
        env = {**self.env, **dict(zip(graph.inputs, refs, strict=True))}
        inner = Conversion(graph, w, env, self.fold, self.problems)
        inner.run()
        if names:
            found = inner.results(graph.outputs, names)
        else:
            found = [inner.value(o) for o in graph.outputs]
        renamed(w.ops, inner.renamed)
        return [replace(r, name=inner.renamed.get(r.name, r.name)) for r in found]

    # --- what is known beforehand ---------------------------------------------------------------
    def _folded(self, node: Any) -> Any:
        """The results of what is made of constants alone, as constants."""
        names = [self.env[a].name for a in node.inputs]
        w = self.w
        if not names or not all(n in w.values or n in w.later for n in names):
            return None
        if any(pairs.is_complex(self.env[a]) for a in node.inputs):
            return None
        prim = vocabulary.find(node.primitive)
        if prim is None or prim.random or sizes_in((node.args, dict(node.params))):
            return None
        if node.primitive in ("cond", "while", "scan", "view_write"):
            return None

        def compute() -> tuple:
            args = [w.known(self.value(a)) if isinstance(a, Name) else a for a in node.args]
            found = prim.compute(args, dict(node.params))
            return tuple(map(np.asarray, found if prim.multi else (found,)))

        if self.fold and all(n in w.fixed for n in names):
            made = compute()
            if sum(a.nbytes for a in made) <= _MOST:
                named = zip(node.outputs, made, strict=True)
                return tuple(w.named(w.scope + o, a) if o in self.used else None for o, a in named)
        self._late(node, compute)
        return None

    def _late(self, node: Any, compute: Callable[[], tuple]) -> None:
        """Note how the results of a node may be computed, should a rule want their numbers."""
        done: list[tuple] = []

        def part(i: int) -> np.ndarray:
            if not done:
                done.append(compute())
            found: np.ndarray = done[0][i]
            return found

        self.lates = {o: functools.partial(part, i) for i, o in enumerate(node.outputs)}

    def value(self, a: Any) -> Any:
        """An argument of a node: a Ref, or what is no tensor."""
        return self.env[a] if isinstance(a, Name) else a

    def _bind(self, node: Any, found: Any, before: int) -> None:
        """Give results their names."""
        results = found if isinstance(found, tuple) else (found,)
        for o, result in zip(node.outputs, results, strict=False):
            if o not in self.used:
                continue
            result = result() if callable(result) else result
            if result is None:
                raise Unmapped(f"the operator does not give its result {o}")
            value = self.graph.values[o]
            if np.dtype(value.dtype).kind != "c":
                result = self.w.cast(result, value.dtype)
            self.env[o] = Ref(result.name, np.dtype(value.dtype), tuple(value.shape))
            if o in self.lates:
                self.w.later.setdefault(result.name, self.lates[o])
            self._rename(result.name, o, self.w.ops[before:])

    def _rename(self, made: str, wanted: str, ops: Iterable[Op]) -> None:
        """Have a result that this node's operators made bear the program's name."""
        if made not in self.renamed and any(made in op.outputs for op in ops):
            w = self.w
            apart = bool(w.scope) or wanted in w.ends
            self.renamed[made] = w.fresh(w.scope + wanted) if apart else wanted

    def results(self, outputs: Sequence[Any], names: Sequence[str]) -> list[Ref]:
        """The values of ``outputs`` under ``names``, each as what an operator of its own gives."""
        own = {n for op in self.w.ops for n in op.outputs}
        taken: set[str] = set()
        found = []
        for given, name in zip(outputs, names, strict=True):
            ref = self.value(given)
            if ref.name in own and ref.name not in taken:
                self.renamed[ref.name] = name
            else:
                self.w.ops.append(Op("Identity", [ref.name], [name], {}))
            taken.add(ref.name)
            found.append(replace(ref, name=name))
        return found


def needed(graph: Graph) -> set[str]:
    """The values that results depend on."""
    wanted = {str(o) for o in graph.outputs if isinstance(o, str)}
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            for inner in Graph((), (node,), ()).graphs():
                wanted.update(free(inner))
    return wanted


def free(graph: Graph) -> set[str]:
    """The values that a body takes from around it."""
    inside = {o for n in graph.nodes for o in n.outputs} | set(graph.inputs)
    used = {str(a) for n in graph.nodes for a in n.inputs} | set(map(str, graph.outputs))
    for inner in graph.graphs():
        used |= free(inner)
    return used - inside


def whole(
    program: Program, opset: int, names: Mapping[str, str], fold: bool = True
) -> tuple[Conversion, list, list]:
    """A conversion of ``program``: (it, the inputs, the results). ``names``: what inputs and
    results are called in the model."""
    w = Writer(opset, hint=hints(program))
    w.taken |= {*program.values, *names.values(), *program.state}
    ends = [names.get(v.name, v.name) for v in program.outputs]
    w.ends = {*ends, *(names.get(v.name, v.name) for v in program.inputs)}
    w.taken |= w.ends
    env: dict[str, Ref] = {}
    odd: list[Problem] = []
    for value in program.inputs:
        ref = Ref(names.get(value.name, value.name), np.dtype(value.dtype), tuple(value.shape))
        env[value.name] = ref
        for dim, n in enumerate(value.shape):
            if not is_number(n):
                w.sources.setdefault(str(n), (ref, dim))
    for name, t in program.tensors():
        array = numbers(t)
        env[name] = Ref(name, array.dtype, array.shape)
        if array.dtype.kind == "c":
            array = np.stack([array.real, array.imag], -1)
        w.values[name] = array
    for value in (*program.inputs, *program.outputs):
        try:
            element_type(value.dtype)
        except Unmapped as why:
            odd.append(Problem(f"the tensor {value.name}", "", "", str(why)))
    odd += pinned(program)
    w.fixed |= set(program.constants)
    made = Conversion(program.graph, w, env, fold)
    made.problems += odd
    made.run()
    outs = [] if made.problems else made.results(program.results, ends)
    if not made.problems and w.unmade:
        made.problems += unmade(w, outs, made.renamed)
    if made.problems:
        raise ExportError(told(made.problems))
    return made, [env[v.name] for v in program.inputs], outs


def unmade(w: Writer, outs: Sequence[Ref], names: Mapping[str, str]) -> list[Problem]:
    """Operators that results need, and that take what is not made."""
    back = {new: old for old, new in names.items()}
    ops = pruned([replace(op) for op in w.ops], [back.get(r.name, r.name) for r in outs])
    return [
        Problem(op.kind, op.module, op.line, w.unmade[n])
        for op in ops for n in op.inputs if n in w.unmade
    ]  # fmt: skip


def pinned(program: Program) -> list[Problem]:
    """Dimensions that can have one size only, whatever their names say: no model can tell that."""
    found = []
    for relation, line in program.relations:
        if relation.tree[0] == "==" and len(relation.names) == 1:
            (name,) = relation.names
            dim = program.dims[name]
            tried = range(max(dim.min, 2), min(dim.max or _TRIED, _TRIED) + 1)
            fits = [n for n in tried if relation.evaluate({name: n})]
            if len(fits) <= 1 < len(tried):
                why = (
                    f"{relation} is needed, so that {name!r} cannot change: leave it out of dynamic"
                )
                found.append(Problem("a size", "", line, why))
    return found


def numbers(tensor: Any) -> np.ndarray:
    """The numbers of a tensor that a program keeps."""
    return np.asarray(tensor.detach().array)


def hints(program: Program) -> dict[str, int]:
    """A size for each dimension that may change."""
    return {d.name: max(d.min, min(7, d.max or 7)) for d in program.dims.values()}


def told(problems: Sequence[Problem]) -> str:
    """All that cannot be written."""
    lines = list(dict.fromkeys(f"  {p}" for p in problems))
    return (
        f"onnx.export: {len(lines)} operation{'s' if len(lines) > 1 else ''} of the program "
        "cannot be written as ONNX:\n" + "\n".join(lines) + "\n"
        "Write these otherwise, or leave them out of the module that is exported"
    )
