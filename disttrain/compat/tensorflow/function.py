"""``tf.function``: a Python function traced once for each kind of arguments, then run as a
graph."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ... import tree
from ...context import thread
from ...trace import warn
from . import staging
from .dispatch import IN_KERAS, _settled
from .graph import FuncGraph, Run, blank, example_of
from .tensor import GRAPH, SymbolicTensor, convert, is_tensor, wrap
from .types import TensorShape, TensorSpec
from .variable import Variable

_RUN_EAGERLY = "compat.tensorflow.run_functions_eagerly"


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Let functions run as Python, without graphs."""
    thread.rank.slots[_RUN_EAGERLY] = bool(run_eagerly)


def functions_run_eagerly() -> bool:
    """Whether they do."""
    return bool(thread.rank.slots.get(_RUN_EAGERLY))


class ConcreteFunction:
    """One trace: a graph, and the structures of what it takes and gives."""

    def __init__(
        self, name: str, graph: FuncGraph, bound: Any, outputs: Any, sources: list
    ) -> None:
        self.name, self.graph = f"__inference_{name}".encode(), graph
        self._bound, self.structured_outputs, self._sources = bound, outputs, sources
        kinds = {op.type for op in graph.operations}
        self._taped = bool(kinds & {"TapeEnter"})

    inputs = property(lambda self: list(self.graph.inputs))
    outputs = property(lambda self: list(self.graph.outputs))
    variables = property(lambda self: tuple(self.graph.variables))
    trainable_variables = property(lambda self: tuple(v for v in self.variables if v.trainable))
    captured_inputs = property(lambda self: [t for t, _ in self.graph.captured])

    @property
    def structured_input_signature(self) -> tuple:
        return tuple(_told(v, n) for n, v in self._bound.items()), {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = list(self._bound)
        given = dict(zip(names, args, strict=False)) | kwargs
        wanted = [n for n, v in self._bound.items() if _holds(v)]
        missing = [n for n in wanted if n not in given]
        if missing:
            raise TypeError(f"{self.name.decode()}() missing required arguments: {missing}")
        values = [t for n in wanted for t in tree.leaves(given[n])]
        return self.run(
            [convert(v, t.dtype) for v, t in zip(values, self.graph.inputs, strict=True)]
        )

    def run(self, tensors: list) -> Any:
        """The results for the tensors of a call."""
        outer, graph = GRAPH.get(), self.graph
        given = [*tensors, *(t for t, _ in graph.captured)]
        if outer is not None:
            found = outer.record(
                "StatefulPartitionedCall", lambda *v, run: tuple(graph.run(list(v),
                    Run(run.tapes))),
                given, examples=tuple(blank(t) for t in graph.outputs), controlled=True,
                twins=[None] * len(graph.outputs) if graph.is_open() else None,
            )  # fmt: skip
            return self._rebuilt(list(found))
        plain = not (thread.tapes or self._taped or IN_KERAS.get())
        with dt.no_grad() if plain else contextlib.nullcontext():
            found = graph.run([t._value for t in given])
        return self._rebuilt([wrap(_settled(v)) for v in found])

    def _rebuilt(self, found: list) -> Any:
        leaves, rebuild = tree.flatten(self.structured_outputs, with_none=True)
        rows = iter(found)
        return rebuild([next(rows) if isinstance(t, SymbolicTensor) else t for t in leaves])

    def pretty_printed_signature(self, verbose: bool = True) -> str:
        """Its parameters and results, as text."""
        lines = ["Input Parameters:"]
        lines += [f"  {n} (POSITIONAL_OR_KEYWORD): {_kind(v)}" for n, v in self._bound.items()]
        lines += ["Output Type:", f"  {_kind(self.structured_outputs)}", "Captures:"]
        return "\n".join([*lines, "  None" if not self.variables else "\n".join(
            f"  {id(v)}: TensorSpec(shape=(), dtype=tf.resource, name=None)"
            for v in self.variables)])  # fmt: skip

    def __str__(self) -> str:
        return f"ConcreteFunction {self.pretty_printed_signature()}"

    def __repr__(self) -> str:
        takes = ", ".join(f"{n}: {_kind(v)}" for n, v in self._bound.items())
        return f"<ConcreteFunction ({takes}) -> {_kind(self.structured_outputs)} at {id(self):#X}>"


def _holds(value: Any) -> bool:
    return any(isinstance(v, (TensorSpec, SymbolicTensor)) for v in tree.leaves(value))


def _told(value: Any, name: str) -> Any:
    return tree.map(lambda v: TensorSpec(v.shape, v.dtype, name) if _holds(v) else v, value)


def _kind(value: Any) -> str:
    if isinstance(value, (SymbolicTensor, TensorSpec)):
        return repr(TensorSpec(value.shape, value.dtype))
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_kind, value))
        word = "List" if isinstance(value, list) else "Tuple"
        return f"{word}[{inner}]"
    if isinstance(value, dict):
        return "Dict[[" + ", ".join(f"[{k!r}, {_kind(v)}]" for k, v in value.items()) + "]]"
    return f"Literal[{value!r}]"


class Function:
    """A function that is traced when it is called with arguments of a new kind: other types or
    shapes of tensors, other Python values."""

    def __init__(
        self, python_function: Callable, name: str | None = None, input_signature: Any = None,
        autograph: bool = True, reduce_retracing: bool = False,
    ) -> None:  # fmt: skip
        self.python_function, self._autograph = python_function, autograph
        own = getattr(python_function, "__name__", type(python_function).__name__)
        self._name = str(name or own)
        self.input_signature = None if input_signature is None else tuple(input_signature)
        self._relaxing = reduce_retracing
        self._traces: dict[Any, ConcreteFunction] = {}
        self._count, self._recent = 0, [False] * 5
        self._methods: Any = weakref.WeakKeyDictionary()
        self._signature = inspect.signature(python_function)
        functools.update_wrapper(self, python_function)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        try:
            known = self._methods.get(instance)
        except TypeError:  # (no weak references, or no hash)
            known = instance.__dict__.get(f"_tf_function_{self._name}")
        if known is None:
            known = Function(self.python_function.__get__(_weak(instance)), self._name,
                             self.input_signature, self._autograph, self._relaxing)  # fmt: skip
            try:
                self._methods[instance] = known
            except TypeError:
                instance.__dict__[f"_tf_function_{self._name}"] = known
        return known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if functions_run_eagerly():
            return self.python_function(*args, **kwargs)
        bound = self._bound(args, kwargs)
        trace = self._trace_for(bound)
        leaves = [v for v in tree.leaves(bound) if is_tensor(v) and not _is_object(v)]
        return trace.run([convert(v) for v in leaves])

    def _bound(self, args: tuple, kwargs: dict) -> dict:
        try:
            given = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(self._failed(str(error), args, kwargs)) from None
        given.apply_defaults()
        values = {k: tree.map(_as_tensor, v) for k, v in given.arguments.items()}
        return values if self.input_signature is None else self._cast(values, args, kwargs)

    def _failed(self, why: str, args: tuple, kwargs: dict) -> str:
        names = list(self._signature.parameters)
        specs = self.input_signature
        takes = ", ".join(f"{n}: {s!r}" for n, s in zip(names, specs, strict=False)) if specs else (
            ", ".join(names))  # fmt: skip
        return (f"Binding inputs to tf.function failed due to `{why}`. Received args: {args} and "
                f"kwargs: {kwargs} for signature: ({takes}).")  # fmt: skip

    def _cast(self, values: dict, args: tuple, kwargs: dict) -> dict:
        out = dict(values)
        for (name, value), spec in zip(values.items(), self.input_signature or (), strict=False):
            specs, rebuild = tree.flatten(spec)
            found = []
            parts = [value] if len(specs) == 1 and isinstance(value, list) else tree.leaves(value)
            if isinstance(spec, TensorSpec):
                parts = [value]
            for v, s in zip(parts, specs, strict=True):
                t = v if isinstance(v, TensorSpec) else convert(v, hint=s.dtype)
                if not s.is_compatible_with(t):
                    one = TensorSpec(t.shape, t.dtype)
                    raise TypeError(self._failed(f"Can not cast {one!r} to {s!r}", args, kwargs))
                found.append(_Given(t, s) if not isinstance(t, TensorSpec) else t)
            out[name] = rebuild(found)
        return {k: tree.map(lambda v: v.tensor if isinstance(v, _Given) else v, v)
                for k, v in out.items()}  # fmt: skip

    def _specs(self, bound: dict) -> dict:
        """What a trace for ``bound`` is to hold for."""
        specs = {k: tree.map(_spec_of, v) for k, v in bound.items()}
        if self.input_signature is not None:
            specs |= dict(zip(specs, self.input_signature, strict=False))
        return specs

    def _trace_for(self, bound: dict) -> ConcreteFunction:
        specs = self._specs(bound)
        found = self._known(specs)
        if found is None and self._relaxing and self.input_signature is None:
            specs = self._relaxed(specs)
            found = self._known(specs)
        self._recent = [*self._recent[1:], found is None]
        if found is None:
            found = self._first(specs, bound)
            place = id(found.graph.outer_graph) if found.graph.captured else None
            self._traces[_key(specs), place] = found
            self._tell()
        return found

    def _known(self, specs: dict) -> ConcreteFunction | None:
        """The trace for ``specs``: one that uses nothing of the function around it, or was made
        inside of it."""
        key = _key(specs)
        return self._traces.get((key, None)) or self._traces.get((key, id(GRAPH.get())))

    def _relaxed(self, specs: dict) -> dict:
        """``specs`` with None for sizes that differ from those of an earlier trace."""
        for trace in self._traces.values():
            mine, theirs = tree.leaves(specs), tree.leaves(trace._bound)
            if len(mine) == len(theirs) and all(map(_near, mine, theirs)):
                rows = iter([_wider(a, b) for a, b in zip(mine, theirs, strict=True)])
                return {k: tree.map(lambda _, r=rows: next(r), v) for k, v in specs.items()}
        return specs

    def _tell(self) -> None:
        if all(self._recent) and self._count > len(self._recent) - 1:
            n = len(self._recent)
            warn(
                f"{n} out of the last {n} calls to {self!r} triggered tf.function retracing. "
                "Tracing is expensive and the excessive number of tracings could be due to (1) "
                "creating @tf.function repeatedly in a loop, (2) passing tensors with different "
                "shapes, (3) passing Python objects instead of tensors. For (1), please define "
                "your @tf.function outside of the loop. For (2), @tf.function has "
                "reduce_retracing=True option that can avoid unnecessary retracing. For (3), "
                "please refer to https://www.tensorflow.org/guide/function#controlling_retracing "
                "and https://www.tensorflow.org/api_docs/python/tf/function for  more details."
            )

    def _first(self, specs: dict, bound: dict) -> ConcreteFunction:
        trace = self._trace(specs, bound)
        if trace.graph.created:  # variables are made at the first call, and never again
            if self._count > 1:
                raise ValueError(_ONCE)
            trace = self._trace(specs, bound)
            if trace.graph.created:
                raise ValueError(_ONCE)
        return trace

    def _trace(self, specs: dict, bound: dict) -> ConcreteFunction:
        self._count += 1
        fn = self.python_function
        graph = FuncGraph(self._name, GRAPH.get())
        with dt.fork_rng(), graph:
            given = {k: self._placeholders(graph, k, v, bound.get(k)) for k, v in specs.items()}
            args, kwargs = self._split(given)
            body = staging.STATEMENTS.call(fn) if self._autograph else fn
            found = body(*args, **kwargs)
            leaves, rebuild = tree.flatten(found, with_none=True)
            outs = [
                v if v is None or not _can_leave(v) else graph.inside(convert(v)) for v in leaves
            ]
            outs = [v if not isinstance(v, SymbolicTensor) else _last(graph, v) for v in outs]
        graph.finish([v for v in outs if isinstance(v, SymbolicTensor)])
        graph.forget()
        return ConcreteFunction(f"{self._name}_{self._count}", graph, specs, rebuild(outs), [])

    def _placeholders(self, graph: FuncGraph, name: str, spec: Any, value: Any) -> Any:
        values = iter(tree.leaves(value)) if value is not None else iter(())
        flat = tree.leaves(spec)
        alike = value is not None and len(tree.leaves(value)) == len(flat)

        def one(s: Any) -> Any:
            v = next(values, None) if alike else None
            if not isinstance(s, TensorSpec):
                return s
            known = v is not None and is_tensor(v)
            example = convert(v)._value if known else example_of(s, 2)
            twin = example
            if not s.shape.is_fully_defined():
                twin = _other(s, example)
            word = name if s.name is None or len(flat) > 1 else s.name
            return graph.placeholder(s, example, twin, word)

        return tree.map(one, spec)

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

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """The trace for such arguments: tensors, or specifications of them."""
        if self.input_signature is not None and not args and not kwargs:
            names = list(self._signature.parameters)
            kwargs = dict(zip(names, self.input_signature, strict=False))
        return self._trace_for(self._bound(args, kwargs))

    def experimental_get_tracing_count(self) -> int:
        """How often it was traced."""
        return self._count

    def pretty_printed_concrete_signatures(self, verbose: bool = True) -> str:
        """What its traces take and give, as text."""
        return "\n\n".join(t.pretty_printed_signature() for t in self._traces.values())

    def __repr__(self) -> str:
        return f"<tensorflow.python.eager.polymorphic_function.Function object at {id(self):#x}>"


_ONCE = (
    "tf.function only supports singleton tf.Variables created on the first call. Make sure the "
    "tf.Variable is only created once or created outside tf.function. See "
    "https://www.tensorflow.org/guide/function#creating_tfvariables for more information."
)


class _Given:
    """A tensor with the specification that it has to fit."""

    def __init__(self, tensor: Any, spec: TensorSpec) -> None:
        self.tensor, self.spec = tensor, spec


def _weak(instance: Any) -> Any:
    return instance


def _can_leave(value: Any) -> bool:
    return is_tensor(value) or isinstance(value, (int, float, complex, str, bytes, np.ndarray,
                                                  np.generic))  # fmt: skip


def _last(graph: FuncGraph, t: SymbolicTensor) -> SymbolicTensor:
    return graph.record("Identity", lambda v: v, [t])


def _as_tensor(value: Any) -> Any:
    return convert(value) if isinstance(value, (np.ndarray, np.generic, dt.Tensor)) else value


def _is_object(value: Any) -> bool:
    return isinstance(value, Variable) or not hasattr(value, "_value") or hasattr(value, "assign")


def _spec_of(value: Any) -> Any:
    if isinstance(value, TensorSpec):
        return TensorSpec(value.shape, value.dtype, value.name)
    if is_tensor(value) and not _is_object(value):
        return TensorSpec(value.shape, value.dtype)
    return value


def _key(specs: dict) -> Any:
    def one(v: Any) -> Any:
        if isinstance(v, TensorSpec):
            return v.shape, v.dtype
        try:
            hash(v)
        except TypeError:
            return type(v), id(v)
        return type(v), v

    return tree.structure(specs), tuple(map(one, tree.leaves(specs, with_none=True)))


def _near(a: Any, b: Any) -> bool:
    """Whether one trace could serve for both."""
    if not (isinstance(a, TensorSpec) and isinstance(b, TensorSpec)):
        return _key({"": a}) == _key({"": b})
    return a.dtype is b.dtype and a.shape.rank == b.shape.rank


def _wider(a: Any, b: Any) -> Any:
    if not isinstance(a, TensorSpec):
        return a
    sizes = [x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)]
    return TensorSpec(sizes, a.dtype, a.name)


def _other(spec: TensorSpec, example: Any) -> Any:
    """An example of other sizes, where ``spec`` leaves them open."""
    if spec.shape.rank is None:
        return None
    sizes = [n + 1 if d is None else n for d, n in zip(spec.shape, example.shape, strict=True)]
    return example_of(TensorSpec(sizes, spec.dtype), 2)


def function(
    func: Callable | None = None, input_signature: Any = None, autograph: bool = True,
    jit_compile: Any = None, reduce_retracing: bool = False, experimental_implements: Any = None,
    experimental_autograph_options: Any = None, experimental_attributes: Any = None,
    experimental_relax_shapes: Any = None, experimental_compile: Any = None,
    experimental_follow_type_hints: Any = None,
) -> Any:  # fmt: skip
    """Trace ``func`` into a graph at its first call, and for each new kind of arguments."""
    relaxed = reduce_retracing or bool(experimental_relax_shapes)

    def made(fn: Callable) -> Function:
        return Function(fn, None, input_signature, autograph, relaxed)

    return made if func is None else made(func)


__all__ = ["ConcreteFunction", "Function", "TensorShape", "function", "run_functions_eagerly"]
