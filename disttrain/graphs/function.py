"""Functions that are traced when they are called with arguments of a new kind: other types or
shapes of tensors, other Python values."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from .. import tree
from ..compile.autograph import Statements
from ..context import thread
from ..core.grad_mode import no_grad
from ..core.random import fork_rng
from ..core.tensor import Tensor
from ..ops import api as ops
from ..partial_shape import PartialShape
from .compiled import Compiled
from .composites import opened
from .graph import CURRENT, Graph, Run, Symbol, blank, tried
from .methods import methods_of
from .streams import Stream, paired


class Spec:
    """What a tensor is to be: its shape (one of ``shapes``), its type and a name."""

    shapes: ClassVar[type[PartialShape]] = PartialShape

    def __init__(self, shape: Any, dtype: Any, name: str | None = None) -> None:
        self.shape, self.dtype, self.name = self.shapes(shape), dtype, name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> Any:
        """What ``tensor`` (or another specification) is."""
        return cls(tensor.shape, tensor.dtype, name)

    from_spec = from_tensor

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a tensor fits."""
        same: bool = self.dtype == other.dtype
        return same and self.shape.is_compatible_with(other.shape)

    def __eq__(self, other: object) -> bool:
        mine = (type(self), self.shape, self.dtype, self.name)
        return isinstance(other, Spec) and mine == (
            type(other), other.shape, other.dtype, other.name
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def example(self, size: int) -> Any:
        """A tensor that fits, with ``size`` where a size is not known."""
        sizes = [size if d is None else d for d in (self.shape if self.shape else ())]
        make = ops.ones if self.dtype.is_floating_point else ops.zeros
        return make(sizes, dtype=self.dtype)


class Trace:
    """One trace: a graph, and the structures of what it takes (``bound``) and gives."""

    kind: ClassVar[str] = "Call"
    spec: ClassVar[type[Spec]] = Spec

    def __init__(self, name: str, graph: Graph, bound: dict, outputs: Any) -> None:
        self.name, self.graph, self.bound, self.structured_outputs = name, graph, bound, outputs
        self.title, self.compiled = name, Compiled(graph)
        self._results = tree.flatten(tree.map(opened, outputs), with_none=True)
        self.streams = any(isinstance(v, Stream) for v in tree.leaves(bound))

    @property
    def inputs(self) -> list:
        """What stands for its arguments."""
        return list(self.graph.inputs)

    @property
    def outputs(self) -> list:
        """What stands for its results."""
        return list(self.graph.outputs)

    @property
    def captured_inputs(self) -> list:
        """What it uses of the function around it."""
        return [t for t, _ in self.graph.captured]

    @property
    def variables(self) -> tuple:
        """The variables that it reads or writes."""
        return tuple(self.graph.variables)

    @property
    def trainable_variables(self) -> tuple:
        """Those that tapes watch."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def structured_input_signature(self) -> tuple:
        """Its arguments: specifications under the names of the parameters, and values."""
        return tuple(
            tree.map(lambda v, n=n: self.spec(v.shape, v.dtype, n) if _is_input(v) else v, value)
            for n, value in self.bound.items()
        ), {}

    # --- what a subclass may say otherwise ------------------------------------------------------
    def records(self) -> bool:
        """Whether gradients may be asked for."""
        return bool(thread.tapes) or self.graph.taped or thread.grad_enabled

    def tensor(self, value: Any, wanted: Symbol) -> Any:
        """What is given for an input."""
        return value if isinstance(value, (Tensor, Symbol)) else ops.as_tensor(value)

    def result(self, value: Any) -> Any:
        """A result as the program sees it."""
        return value

    # --- running --------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results for what stands in the place of the specifications; other arguments are as
        they were when it was traced."""
        given = dict(zip(self.bound, args, strict=False)) | kwargs
        wanted = [n for n, v in self.bound.items() if any(map(_is_input, tree.leaves(v)))]
        missing = [n for n in wanted if n not in given]
        if missing:
            raise TypeError(f"{self.title}() missing required arguments: {missing}")
        parts = [v for n in wanted for v in _beside(self.bound[n], given[n])]
        values = [t for v in parts for t in tree.leaves(v)]
        pairs = zip(values, self.graph.inputs, strict=True)
        return self.run([self.tensor(v, t) for v, t in pairs])

    def run(self, tensors: list, streams: Sequence[tuple[Stream, Any]] = ()) -> Any:
        """The results for the tensors, and the iterators, of a call."""
        outer, graph = CURRENT.get(), self.graph
        given = [*tensors, *(t for t, _ in graph.captured)]

        def call(*values: Any, run: Run) -> tuple:
            for stream, value in streams:
                stream.is_now(value)
            return tuple(graph.run(list(values), Run(run.tapes, run.trial)))

        if outer is not None:
            if graph.taped:
                outer.has_tape()
            examples = tuple(blank(t) for t in graph.outputs)
            if thread.tapes:  # of which they are to be known
                values = [t._value if isinstance(t, Symbol) else graph.value_of(t) for t in given]
                examples = tuple(tried(graph, values)) or examples
            found = outer.record(
                self.kind, call, given, examples=examples, controlled=True,
                twins=[None] * len(graph.outputs) if graph.is_open() else None,
            )  # fmt: skip
            return self._rebuilt(list(found))
        values = [graph.value_of(t) for t in given]
        records = self.records()
        found = None if records else self.compiled.run(values)
        if found is None:
            with contextlib.nullcontext() if records else no_grad():
                run = Run()
                try:
                    found = call(*values, run=run)
                finally:
                    run.close()
        return self._rebuilt([self.result(v) for v in found])

    def _rebuilt(self, found: list) -> Any:
        leaves, rebuild = self._results
        rows = iter(found)
        return rebuild([next(rows) if isinstance(t, Symbol) else t for t in leaves])

    # --- looking at it --------------------------------------------------------------------------
    def told(self, value: Any) -> str:
        """What nested arguments or results are: specifications and values."""
        if _is_input(value):
            return repr(self.spec(value.shape, value.dtype))
        if isinstance(value, (list, tuple)):
            word = "List" if isinstance(value, list) else "Tuple"
            return f"{word}[{', '.join(map(self.told, value))}]"
        if isinstance(value, dict):
            parts = ", ".join(f"[{k!r}, {self.told(v)}]" for k, v in value.items())
            return f"Dict[[{parts}]]"
        return f"Literal[{value!r}]"

    def described(self, held: str = "a variable") -> str:
        """Its parameters, its results and the variables (``held``: what they are) as text."""
        lines = ["Input Parameters:"]
        lines += [f"  {n} (POSITIONAL_OR_KEYWORD): {self.told(v)}" for n, v in self.bound.items()]
        lines += ["Output Type:", f"  {self.told(self.structured_outputs)}", "Captures:"]
        uses = [f"  {id(v)}: {held}" for v in self.graph.variables]
        return "\n".join([*lines, *(uses or ["  None"])])


def _is_input(value: Any) -> bool:
    return isinstance(value, (Spec, Symbol))


def run_eagerly(eagerly: bool) -> None:
    """Let functions run as Python on this rank, without graphs."""
    thread.rank.slots["graphs.run_eagerly"] = bool(eagerly)


def runs_eagerly() -> bool:
    """Whether they do."""
    return bool(thread.rank.slots.get("graphs.run_eagerly"))


class Function:
    """``fn`` as graphs. ``signature``: specifications of all arguments, which are the only ones.
    ``relaxed``: sizes that change from call to call become unknown ones. ``statements``: how
    Python's statements over symbols are run (AutoGraph); None: as Python runs them.

    A subclass says what tensors are, and in which words errors are told.
    """

    graph: ClassVar[type[Graph]] = Graph
    trace: ClassVar[type[Trace]] = Trace
    spec: ClassVar[type[Spec]] = Spec
    again: ClassVar[str] = "variables may be made at the first call of a traced function alone"

    def __init__(
        self, fn: Callable, name: str | None = None, signature: Any = None, relaxed: bool = False,
        statements: Statements | None = None,
    ) -> None:  # fmt: skip
        self.python_function, self.statements = fn, statements
        self._name = str(name or getattr(fn, "__name__", type(fn).__name__))
        self.input_signature = None if signature is None else tuple(signature)
        self._relaxing = relaxed
        self._traces: dict[Any, Trace] = {}
        self._quick: dict[Any, Trace] = {}  # of calls with tensors alone, by place: by their meta
        self._count, self._recent = 0, [False] * 5
        self._locks: dict[Any, Any] = {}  # by rank: one thread of a rank traces
        self._signature = inspect.signature(fn)
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]

    # --- what a subclass may say otherwise ------------------------------------------------------
    def is_tensor(self, value: Any) -> bool:
        """Whether an argument becomes an input of the graph."""
        return isinstance(value, (Tensor, Symbol))

    def tensor(self, value: Any, spec: Any = None) -> Any:
        """An argument (which ``spec`` is said of) as a tensor."""
        return value if isinstance(value, (Tensor, Symbol)) else ops.as_tensor(value)

    def meta(self, value: Any) -> Any:
        """Shape and type of a tensor that is taken as it is, fast; None: ask further."""
        return value.meta()[:2] if value.__class__ is Tensor else None

    def given(self, value: Any) -> Any:
        """An argument as it is taken: arrays as tensors."""
        arrays = (np.ndarray, np.generic, Tensor)
        return self.tensor(value) if isinstance(value, arrays) else value

    def is_result(self, value: Any) -> bool:
        """Whether a result is a tensor, and no Python object that is given as it is."""
        return self.is_tensor(value)

    def misfit(self, why: str, args: tuple, kwargs: dict) -> str:
        """What is told of arguments that do not go with the signature."""
        return f"{self._name}: {why}"

    def tell(self, count: int) -> None:
        """Say that each of the last ``count`` calls was traced anew."""

    def __deepcopy__(self, memo: dict) -> Any:
        fn = copy.deepcopy(self.python_function, memo)
        return type(self)(fn, self._name, self.input_signature, self._relaxing, self.statements)

    # --- calls ----------------------------------------------------------------------------------
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        table = methods_of(instance)
        known = table.get(self)
        if known is None:
            known = table[self] = type(self)(
                self.python_function.__get__(instance), self._name, self.input_signature,
                self._relaxing, self.statements,
            )  # fmt: skip
        return known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if runs_eagerly():
            return self.python_function(*args, **kwargs)
        key = None if kwargs or CURRENT.get() is not None else tuple(map(self.meta, args))
        if key in self._quick:
            self._recent = [*self._recent[1:], False]
            return self._quick[key].run(list(args))
        bound = self._bound(args, kwargs)
        trace = self._trace_for(bound)
        tensors = [self.tensor(v) for v in tree.leaves(bound) if self.is_tensor(v)]
        alone = key and None not in key and len(bound) == len(key) == len(tensors)
        if alone and not trace.graph.captured:
            self._quick[key] = trace
        return trace.run(tensors, paired(trace.bound, bound) if trace.streams else ())

    def _bound(self, args: tuple, kwargs: dict) -> dict:
        try:
            given = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(self.misfit(str(error), args, kwargs)) from None
        given.apply_defaults()
        values = {k: tree.map(self.given, v) for k, v in given.arguments.items()}
        return values if self.input_signature is None else self._cast(values, args, kwargs)

    def _cast(self, values: dict, args: tuple, kwargs: dict) -> dict:
        out = dict(values)
        for (name, value), spec in zip(values.items(), self.input_signature or (), strict=False):
            specs, rebuild = tree.flatten(spec)
            parts = _beside(spec, value)
            if len(parts) != len(specs):
                why = f"{value!r} has not the structure of {spec!r}"
                raise TypeError(self.misfit(why, args, kwargs))
            found = [v if isinstance(v, Spec) else self.tensor(v, s)
                     for v, s in zip(parts, specs, strict=True)]  # fmt: skip
            for t, s in zip(found, specs, strict=True):
                if not isinstance(t, Spec) and not s.is_compatible_with(t):
                    why = f"Can not cast {self.spec(t.shape, t.dtype)!r} to {s!r}"
                    raise TypeError(self.misfit(why, args, kwargs))
            out[name] = rebuild(found)
        return out

    def _spec_of(self, value: Any) -> Any:
        if isinstance(value, Spec):
            return self.spec(value.shape, value.dtype, value.name)
        if self.is_tensor(value):
            return self.spec(value.shape, value.dtype)
        return Stream.of(value) or value

    def _trace_for(self, bound: dict) -> Trace:
        specs = {k: tree.map(self._spec_of, v) for k, v in bound.items()}
        if self.input_signature is not None:
            specs |= dict(zip(specs, self.input_signature, strict=False))
        found = self._known(specs)
        if found is None and self._relaxing and self.input_signature is None:
            specs = self._relaxed(specs)
            found = self._known(specs)
        if found is not None:
            self._recent = [*self._recent[1:], False]
            return found
        with self._locks.setdefault(id(thread.rank), threading.RLock()):
            return self._known(specs) or self._new(specs, bound)

    def _new(self, specs: dict, bound: dict) -> Trace:
        self._recent = [*self._recent[1:], True]
        found = self._first(specs, bound)
        place = id(found.graph.outer_graph) if found.graph.captured else None
        self._traces[_key(specs), place] = found
        if all(self._recent) and self._count > len(self._recent) - 1:
            self.tell(len(self._recent))
        return found

    def _known(self, specs: dict) -> Trace | None:
        """The trace for ``specs``: one that uses nothing of the function around it, or was made
        inside of it."""
        key = _key(specs)
        return self._traces.get((key, None)) or self._traces.get((key, id(CURRENT.get())))

    def _relaxed(self, specs: dict) -> dict:
        """``specs`` with None for sizes that differ from those of an earlier trace."""
        for trace in self.traces:
            mine, theirs = tree.leaves(specs), tree.leaves(trace.bound)
            if len(mine) == len(theirs) and all(map(_near, mine, theirs)):
                rows = iter([self._wider(a, b) for a, b in zip(mine, theirs, strict=True)])
                return {k: tree.map(lambda _, r=rows: next(r), v) for k, v in specs.items()}
        return specs

    def _wider(self, a: Any, b: Any) -> Any:
        if not isinstance(a, Spec):
            return a
        return self.spec(a.shape.widened(b.shape), a.dtype, a.name)

    # --- tracing --------------------------------------------------------------------------------
    def _first(self, specs: dict, bound: dict) -> Trace:
        found = self._traced(specs, bound)
        if found.graph.created:  # variables are made at the first call, and never again
            if self._count == 1:
                found = self._traced(specs, bound)
            if found.graph.created:
                raise ValueError(self.again)
        return found

    def _traced(self, specs: dict, bound: dict) -> Trace:
        self._count += 1
        graph, fn = self.graph(self._name, CURRENT.get()), self.python_function
        body = fn if self.statements is None else self.statements.call(fn)
        with fork_rng(), graph:
            given = {k: self._placeholders(graph, k, v, bound.get(k)) for k, v in specs.items()}
            args, kwargs = self._split(given)
            found = tree.map(opened, body(*args, **kwargs))
            leaves, rebuild = tree.flatten(found, with_none=True)
            outs = [graph.record("Identity", lambda v: v, [graph.inside(v)], role="pure")
                    if v is not None and self.is_result(v) else v for v in leaves]  # fmt: skip
        graph.finish([v for v in outs if isinstance(v, Symbol)])
        graph.forget()
        return self.trace(f"{self._name}_{self._count}", graph, specs, rebuild(outs))

    def _placeholders(self, graph: Graph, name: str, spec: Any, value: Any) -> Any:
        flat, known = tree.leaves(spec), tree.leaves(value) if value is not None else []
        values = iter(known if len(known) == len(flat) else [None] * len(flat))

        def one(s: Any) -> Any:
            v = next(values)
            if not isinstance(s, Spec):
                return s
            there = v is not None and self.is_tensor(v)
            t = self.tensor(v) if there else None
            example = s.example(2) if t is None else t._value if isinstance(
                t, Symbol) else graph.value_of(t)  # fmt: skip
            twin = example if s.shape.is_fully_defined() else self._other(s, example)
            word = name if s.name is None or len(flat) > 1 else s.name
            return graph.placeholder(example, twin, word)

        return tree.map(one, spec)

    def _other(self, spec: Any, example: Any) -> Any:
        """An example of other sizes, where ``spec`` leaves them open."""
        if spec.shape.rank is None:
            return None
        sizes = [n + 1 if d is None else n for d, n in zip(spec.shape, example.shape, strict=True)]
        return self.spec(sizes, spec.dtype).example(2)

    def _split(self, given: dict) -> tuple[list, dict]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in given.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args += value
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs |= value
            elif kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs

    # --- looking at it --------------------------------------------------------------------------
    def trace_of(self, *args: Any, **kwargs: Any) -> Trace:
        """The trace for such arguments: tensors, or specifications of them."""
        if self.input_signature is not None and not args and not kwargs:
            kwargs = dict(zip(self._signature.parameters, self.input_signature, strict=False))
        return self._trace_for(self._bound(args, kwargs))

    @property
    def count(self) -> int:
        """How often it was traced."""
        return self._count

    @property
    def traces(self) -> list[Trace]:
        """All traces."""
        return list(self._traces.values())


def _beside(spec: Any, value: Any) -> list:
    """The parts of ``value`` that stand where ``spec`` has its leaves; others where it is not
    built like it."""
    if isinstance(spec, dict) and isinstance(value, dict) and spec.keys() == value.keys():
        return [p for k, s in spec.items() for p in _beside(s, value[k])]
    row = (list, tuple)
    if isinstance(spec, row) and isinstance(value, row) and len(spec) == len(value):
        return [p for s, v in zip(spec, value, strict=True) for p in _beside(s, v)]
    return [] if isinstance(spec, (dict, list, tuple)) else [value]


def _key(specs: dict) -> Any:
    def one(v: Any) -> Any:
        if isinstance(v, Spec):
            return v.shape, v.dtype
        try:
            hash(v)
        except TypeError:
            return type(v), id(v)
        return type(v), v

    return tree.structure(specs), tuple(map(one, tree.leaves(specs, with_none=True)))


def _near(a: Any, b: Any) -> bool:
    """Whether one trace could serve for both."""
    if not (isinstance(a, Spec) and isinstance(b, Spec)):
        same: bool = _key({"": a}) == _key({"": b})
        return same
    return a.dtype == b.dtype and a.shape.rank == b.shape.rank
