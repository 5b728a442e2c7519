"""``export``: a function or a module as a ``Program``."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import tree
from ..compile.guards.kinds import is_module
from ..compile.instruction import Var
from ..core.grad_mode import no_grad
from ..core.random import fork_rng
from ..core.tensor import Tensor, wrap
from ..errors import CaptureError, ConfigError, DisttrainError
from ..nn import Module, Parameter
from ..polynomials import LEAST
from ..shortcuts import shortcuts
from . import ranges, statements, trees, vocabulary
from .dims import Leaf, Place, places
from .lowering import Lowered, Lowering, named, needed
from .program import Program, Signature
from .recording import Fixed, Recorded, record
from .sizes import Size
from .values import Graph, Name, Node, Value


def export(
    fn: Callable, args: Any = (), kwargs: Mapping[str, Any] | None = None, *, dynamic: Any = None,
    train: bool | None = False,
) -> Program:  # fmt: skip
    """``fn`` (a function, a method or a module) as a program that needs no Python.

    ``args``, ``kwargs``: examples of its arguments (a tensor alone is the only one); tensors among
    them are the program's inputs, other values are part of it. ``dynamic``: dimensions whose size
    may change: ``{"x": {0: "batch"}}``, ``{"x": {0: Dim("batch", max=64)}}``, the same by positions
    (``({0: "batch"}, None)``), or True for all that the program allows. One name is one size.
    ``train``: the mode in which modules run (None: as they are).

    ``fn`` runs once, on copies; nothing that it does to its state stays. Raises ``CaptureError``
    with the line where it does what a program cannot: reads numbers of tensors, or fixes a size
    that is to change.
    """
    return Export(fn, args, kwargs, dynamic, train).made()


class Export:
    """One export."""

    def __init__(
        self, fn: Callable, args: Any, kwargs: Mapping[str, Any] | None, dynamic: Any,
        train: bool | None,
    ) -> None:  # fmt: skip
        args = (args,) if isinstance(args, Tensor) else args
        if not callable(fn):
            raise ConfigError(
                f"export: {type(fn).__name__} given; a function or a module is needed"
            )
        if not isinstance(args, (tuple, list)) or not isinstance(kwargs or {}, Mapping):
            raise ConfigError(f"export: args={type(args).__name__}, kwargs={type(kwargs).__name__} "
                              "given; a tuple of arguments and a dict are needed")  # fmt: skip
        self.fn, self.args, self.kwargs = fn, tuple(args), dict(kwargs or {})
        self.train, root = train, _root(fn)
        self.modules = [] if root is None else list(root.modules())
        self.arguments, self.positional = _bound(fn, self.args, self.kwargs)
        self.specs = {
            name: trees.spec_of(value, f"the argument {name!r}", trees.is_tensor)
            for name, value in self.arguments.items()
        }
        self.names = _unique([n for k, s in self.specs.items() for n in trees.names(s, k)])
        self.leaves = [t for t in tree.leaves(list(self.arguments.values()))
                       if isinstance(t, Tensor)]  # fmt: skip
        numbers = iter(range(len(self.leaves)))
        shown = tree.map(
            lambda x: Leaf(next(numbers)) if isinstance(x, Tensor) else x, self.arguments
        )
        self.places = places(dynamic, shown, self.names, self.leaves)

    def made(self) -> Program:
        """The program; where that leaves more sizes free, of computations that serve all sizes."""
        places, program, refused = self.places, None, None
        with shortcuts(allowed=True) as asked:
            try:
                program = self._made()
            except CaptureError as error:
                refused = error
            if not asked() or (program and not (places and self._is_bound(program, places))):
                return _or_raise(program, refused)
        self.places = places
        try:
            with shortcuts(allowed=False):
                other = self._made()
        except DisttrainError:
            return _or_raise(program, refused)
        if program is None or ranges.is_freer(other, program):
            return other
        return program

    def _is_bound(self, program: Program, places: list[Place]) -> bool:
        """Whether some sizes that might change cannot."""
        sizes = [n for v in program.inputs for n in v.shape]
        free = sum(n.__class__ is Size for n in sizes)
        return ranges.narrowness(program) > 0 or free < len(places)

    def _made(self) -> Program:
        with _modes(self.fn, self.train):
            paths, state = _modules(self.fn)
            recorded, fixed = self._staged(paths)
            program = _Assembly(self, recorded, state, fixed).program()
            ranges.check_least(program, lambda name, n: self._differs(program, name, n, paths))
        return program

    def _staged(self, paths: dict) -> tuple[Recorded, set]:
        """The capture; where the function reads numbers, with its statements over tensors as
        branches and loops."""
        places = self.places
        try:
            return self._recorded(paths)
        except CaptureError as refused:
            other = statements.staged(self.fn)
            if isinstance(refused, Fixed) or other is None:
                raise
            before, self.fn, self.places = self.fn, other, places
            try:
                return self._recorded(paths)
            except Exception:
                self.fn = before
                raise refused from None

    def _recorded(self, paths: dict) -> tuple[Recorded, set]:
        """The capture. Of sizes of 1 that nobody has named only batches are tried as others."""
        small = [p for p in self.places if self.leaves[p.leaf].shape[p.dim] < LEAST and not p.asked]
        tried = [p for p in small if p.dim == 0 and self.leaves[p.leaf].shape[0] == 1]
        self.places = [p for p in self.places if p not in small or p in tried]
        try:
            return self._record(paths, self._enlarged())
        except Exception:
            if not tried:
                raise
        self.places = [p for p in self.places if p not in tried]
        return self._record(paths, self._enlarged())

    def _differs(self, program: Program, name: str, size: int, paths: dict) -> str | None:
        """Why the program is not what the function gives where one dimension has this size."""
        cut = {id(t): t for t in self.leaves}
        for place in self.places:
            if program.inputs[place.leaf].shape[place.dim] == Size(name):
                t = self.leaves[place.leaf]
                array = cut[id(t)].detach().array
                part = (slice(None),) * place.dim + (slice(0, size),)
                cut[id(t)] = wrap(array[part].copy()).requires_grad_(t.requires_grad)
        args, kwargs = tree.map(
            lambda x: cut.get(id(x), x) if isinstance(x, Tensor) else x, (self.args, self.kwargs)
        )
        try:
            want = record(self.fn, args, kwargs, (), paths, self.modules).result
            with no_grad(), fork_rng():
                found = program.trial(*args, **kwargs)
        except Exception as error:  # (of the program's own code, too)
            return f"{type(error).__name__}: {error}"
        if any(vocabulary.is_random(n.primitive) for n in program.nodes):
            return None
        return None if _close(want, found) else "another result is computed there"

    def _enlarged(self) -> tuple[tuple, dict]:
        """The arguments, with examples of two where a dimension that may change has less: sizes of
        0 and 1 decide on broadcasting."""
        leaves = list(self.leaves)
        for place in self.places:
            t = leaves[place.leaf]
            n = t.shape[place.dim]
            if n < LEAST:
                shape = [*t.shape]
                shape[place.dim] = LEAST
                array = t.detach().array
                array = np.zeros(shape, array.dtype) if n == 0 else np.repeat(
                    array, LEAST, place.dim)  # fmt: skip
                leaves[place.leaf] = wrap(array).requires_grad_(t.requires_grad)
        new = {id(old): t for old, t in zip(self.leaves, leaves, strict=True)}
        done: tuple[tuple, dict] = tree.map(
            lambda x: new.get(id(x), x) if isinstance(x, Tensor) else x, (self.args, self.kwargs)
        )
        return done

    def _record(self, paths: dict, given: tuple) -> tuple[Recorded, set]:
        """The capture; again without dimensions that the program fixes and nobody has named."""
        fixed: set[tuple[int, int]] = set()
        while True:
            chosen = [(p.leaf, p.dim) for p in self.places if (p.leaf, p.dim) not in fixed]
            args, kwargs = given
            try:
                recorded = record(self.fn, args, kwargs, chosen, paths, self.modules)
            except Fixed:
                if any(p.asked for p in self.places):
                    raise
                inner = {(p.leaf, p.dim) for p in self.places if p.dim} - fixed
                fixed |= inner or {(p.leaf, p.dim) for p in self.places}  # batches are the last
                continue
            if not chosen:
                return recorded, fixed
            assert recorded.found is not None
            more = ranges.fixed(recorded.found, self.places, self.names)
            if not more:
                return recorded, fixed
            fixed |= more


def _or_raise(program: Program | None, refused: CaptureError | None) -> Program:
    if program is None:
        assert refused is not None
        raise refused
    return program


def _close(want: Any, found: Any) -> bool:
    """Whether two results are the same but for rounding."""
    one, other = tree.leaves(want), tree.leaves(found)
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if not isinstance(a, Tensor):
            if a != b:
                return False
            continue
        x, y = a.detach().array, b.detach().array
        if x.shape != y.shape or x.dtype != y.dtype:
            return False
        if x.dtype.kind in "fcV":
            x, y = (z.astype(np.complex128) for z in (x, y))
            if not np.allclose(x, y, rtol=1e-3, atol=1e-3, equal_nan=True):
                return False
        elif not np.array_equal(x, y):
            return False
    return True


class _Assembly:
    """The program of one capture."""

    def __init__(self, of: Export, recorded: Recorded, state: dict, fixed: set) -> None:
        self.of, self.recorded, self.state_names = of, recorded, state
        self.places: list[Place] = [p for p in of.places if (p.leaf, p.dim) not in fixed]
        self.order = ranges.Symbols(recorded.found, self.places)
        self.taken = set(of.names)
        self.result: dict[str, Any] = trees.TENSOR

    def program(self) -> Program:
        graph = self.recorded.graph
        given = dict(zip(graph.inputs, self.of.names, strict=True))
        state: dict[Var, str] = {}
        constants: dict[Var, str] = {}
        for var, t, told in zip(graph.outside(), graph.captured, graph.names, strict=True):
            name = self._outside(t, told)
            (constants if name is None else state)[var] = name or f"%held_{var.number}"
        given.update(state)
        given.update(constants)
        lowering = Lowering(self.recorded, given, self.order.names)
        lowered = lowering.run()
        results = [lowering.value(o) for o in graph.outputs if isinstance(o, Var)]
        result = tree.map(lowering.plain, self.recorded.result)
        self.result = trees.spec_of(result, "its result", trees.is_tensor)
        return self._assembled(lowered, results, state, constants)

    def _outside(self, t: Tensor, told: str) -> str | None:
        """The name of a tensor of the state; None for a constant."""
        known = self.state_names.get(id(t))
        if known is None and isinstance(t, Parameter) and told != "from outside":
            known = told
        if known is None or known in self.taken:
            return None
        self.taken.add(known)
        return known

    def _assembled(self, lowered: Lowered, results: list, state: dict, constants: dict) -> Program:
        """Names, dims and checks."""
        ends = {*map(str, results), *(str(new) for _, new in lowered.writes)}
        nodes = needed(lowered.nodes, ends, has_effect)
        nodes, new = named(nodes, lowered.values, self.taken)
        captured = dict(zip(self.recorded.graph.outside(), self.recorded.tensors, strict=True))
        held = {name: captured[var] for var, name in constants.items()}
        held.update({name: wrap(array) for name, array in lowered.constants.items()})
        used = {a for n in nodes for a in inner_names(n)} | ends
        used |= {target for target, _ in lowered.writes}  # (also where nobody reads them)
        free = (n for n in (f"c{i}" for i in itertools.count()) if n not in self.taken)
        renamed = {old: next(free) for old in held if old in used}
        nodes = [renamed_node(n, renamed) for n in nodes]
        new = {**new, **renamed}
        names = [new.get(str(r), str(r)) for r in results]
        tensors = {n: captured[v] for v, n in state.items() if n in used}
        params = [n for n, t in tensors.items() if isinstance(t, Parameter)]
        values = _values(lowered, nodes, new, [*self.of.names, *tensors, *renamed.values()])
        graph = Graph(tuple(self.of.names), tuple(nodes), tuple(map(Name, names)), values)
        shown = trees.names(self.result, "")
        outputs = ["output"] if shown == [""] else [
            f"output_{n}" if n[:1].isdigit() else n for n in shown]  # fmt: skip
        program = Program(
            graph=graph,
            inputs=tuple(values[n] for n in self.of.names),
            outputs=tuple(values[n]._replace(name=o)
                          for n, o in zip(names, _unique(outputs), strict=True)),
            dims=self.order.dims,
            state=tensors,
            constants={short: held[old] for old, short in renamed.items()},
            signature=Signature(self.of.specs, self.result, self.of.positional),
            parameters=tuple(params),
            buffers=tuple(n for n in tensors if n not in params),
            relations=self.order.relations,
            examples=self.order.examples,
            writes=tuple((new.get(a, a), new.get(str(b), str(b))) for a, b in lowered.writes),
        )  # fmt: skip
        return program


def has_effect(node: Node) -> bool:
    """Whether a node runs even where nobody uses its results."""
    prim = vocabulary.find(node.primitive)
    return prim is not None and prim.checks


def inner_names(node: Node) -> Iterator[str]:
    """The names that a node, and the graphs in it, take from around them."""
    yield from node.inputs
    for graph in Graph((), (node,), ()).graphs():
        for inner in graph.nodes:
            yield from inner_names(inner)
        yield from map(str, graph.outputs)


def renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    """A node with other names for some constants."""

    def name(a: Any) -> Any:
        return Name(names.get(a, a)) if isinstance(a, Name) else a

    def inside(x: Any) -> Any:
        if isinstance(x, Graph):
            nodes = tuple(renamed_node(n, names) for n in x.nodes)
            return Graph(x.inputs, nodes, tuple(map(name, x.outputs)), x.values)
        return tuple(map(inside, x)) if isinstance(x, tuple) and x and isinstance(
            x[0], Graph) else x  # fmt: skip

    return Node(node.primitive, tuple(map(name, node.args)),
                {k: inside(v) for k, v in node.params.items()}, node.outputs, node.module,
                node.line)  # fmt: skip


def _values(lowered: Lowered, nodes: list[Node], new: dict, first: Sequence[str]) -> dict:
    back = {short: old for old, short in new.items()}
    names = [*first, *(o for n in nodes for o in n.outputs)]
    return {n: Value(n, *lowered.values[back.get(n, n)][1:]) for n in names}


# --- arguments ------------------------------------------------------------------------------------
def _bound(fn: Any, args: tuple, kwargs: dict) -> tuple[dict[str, Any], int]:
    """The arguments by name, in order, and how many may be given by position."""
    target = fn.forward if is_module(fn) else fn
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in plain]
    rest = next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), None)
    known = {p.name for p in parameters}
    if len(args) > len(names):
        base = rest or "args"
        names += [f"{base}_{i}" for i in range(len(args) - len(names))]
    order = names[: len(args)]
    found = dict(zip(order, args, strict=True))
    for key in [*(n for n in [*names, *known] if n in kwargs), *kwargs]:
        if key in found and key in order:
            raise ConfigError(f"export: argument {key!r} is given by position and by name")
        found[key] = kwargs[key]
    positional = len(order)
    for name in names[len(order) :]:
        if name not in found or list(found).index(name) != positional:
            break
        positional += 1
    return found, positional


def _unique(names: Sequence[str]) -> list[str]:
    out: list[str] = []
    for name in names:
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "value"
        made, n = base, 0
        while made in out:
            n += 1
            made = f"{base}_{n}"
        out.append(made)
    return out


# --- modules --------------------------------------------------------------------------------------
def _root(fn: Any) -> Module | None:
    """The module of a function, if it is one's."""
    root = fn if is_module(fn) else getattr(fn, "__self__", None)
    return root if isinstance(root, Module) else None


def _modules(fn: Any) -> tuple[dict[int, str], dict[int, str]]:
    """The paths of modules, and the names of parameters and buffers, by id."""
    root = _root(fn)
    if root is None:
        return {}, {}
    paths = {id(m): name for name, m in root.named_modules()}
    state: dict[int, str] = {}
    for name, t in (*root.named_parameters(), *root.named_buffers()):
        state.setdefault(id(t), name)
    return paths, state


@contextmanager
def _modes(fn: Any, train: bool | None) -> Iterator[None]:
    """Modules in the mode ``train`` for the block."""
    root = None if train is None else _root(fn)
    modules = [] if root is None else list(root.modules())
    before = [m.training for m in modules]
    try:
        if root is not None:
            root.train(bool(train))
        yield
    finally:
        for m, mode in zip(modules, before, strict=True):
            m.training = mode


__all__ = ["Export", "export"]
