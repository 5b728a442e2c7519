"""``jit``: a function is staged once for each kind of call, and run from then on as a program; and
what shows such programs (``make_jaxpr``, ``eval_shape``, ``lower``).

A kind of call: the form of its arguments, their shapes and types (weak or not), and the static
ones. The program runs on arrays through the compiler's passes, on other transforms' values through
the gate, where it is one instruction (``JitCall``) of a program that is being staged itself.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import disttrain as dt

from ...context import thread
from ...core.bodies import Body, own
from ...core.gate import Primitive, Tracer
from ...core.tensor import Tensor
from ...core.tensor import wrap as tensor_of
from ...distributed.spmd.arrays import over_ranks, summed, with_layouts
from ...func.named import bound, tracked
from ...func.staging import Stage, Staged, stage
from ...func.trees.listing import listed
from . import jaxpr, sharding, tree
from .array import wrap
from .avals import Aval, ShapeDtypeStruct, aval_of
from .flat import as_array, check_callable, named
from .statics import Statics
from .types import enabled_x64

_registry = tree.default_registry
_WORTH = 32  # turns that a call counts for: the second is shortened by the compiler
DISABLED = "compat.jax.disable_jit"  # the rank's slot: whether jit runs functions as they are
_TRACES = "compat.jax.traces"  # the rank's slot: what was staged, by function


class About(NamedTuple):
    """What is being staged: the function, by which transform, and the names of its arguments'
    leaves."""

    fun: str
    transform: str
    names: Callable[[], list[str]]


class Trace:
    """A function staged for one kind of call: its program, and the form of its result."""

    def __init__(self, about: About, fun: Callable, avals: Sequence[Aval]) -> None:
        self.name, self.avals = getattr(fun, "__name__", type(fun).__name__), list(avals)
        no_result = (
            f"function {about.fun} traced for {about.transform} returned a value of type {{kind}}, "
            "which is not a valid JAX type"
        )

        def of(*tensors: Tensor) -> list[Tensor]:
            arrays = [wrap(t, a.weak) for t, a in zip(tensors, avals, strict=True)]
            leaves, self.form = _registry.flatten(fun(arrays))
            outs = [as_array(x, no_result) for x in leaves]
            self.weak = [o.weak_type for o in outs]
            return [o._value for o in outs]

        self.staged: Staged = stage(of, [(a.shape, a.dtype) for a in avals], about=about)
        consts = self.staged.consts
        self.keeps = not any(isinstance(t, Tracer) or t.requires_grad for t in consts)
        self.call = JitCall(self.name, self.staged.body)

    @property
    def out_avals(self) -> list[Aval]:
        """Shapes and types of the results."""
        pairs = zip(self.staged.results, self.weak, strict=True)
        return [Aval(tuple(shape), np.dtype(kind), weak) for (shape, kind), weak in pairs]

    def __call__(self, values: Sequence[Tensor]) -> Any:
        """The result for these values."""
        given = [*self.staged.consts, *values]
        return self.result(self._run(given))

    def result(self, outs: Sequence[Tensor]) -> Any:
        """The result with these values."""
        return self.form.build(iter([wrap(o, w) for o, w in zip(outs, self.weak, strict=True)]))

    def _run(self, given: list[Tensor]) -> Sequence[Tensor]:
        body = self.staged.body
        if not thread.stack and not _followed(given):
            arrays = [t.array for t in given]
            outs = [tensor_of(own(r, arrays, body)) for r in body.run(_WORTH)(arrays)]
            return with_layouts(body, given, outs)
        level = _stage_of(given)
        if level is not None and not any(t.graph_node() is not None for t in given):
            return level.process(self.call, tuple(given), {})
        return body(*given)


def _followed(values: Sequence[Tensor]) -> bool:
    return thread.grad_enabled and any(t.requires_grad for t in values)


def _stage_of(values: Sequence[Tensor]) -> Any:
    """The level that stages, of which the highest of ``values`` are; where they are of none, the
    one that the calling code runs in."""
    levels = [t.interp for t in values if isinstance(t, Tracer)]
    top = max(levels, key=lambda x: x.level) if levels else (thread.stack or [None])[-1]
    return top if isinstance(top, Stage) and not top.over else None


class JitCall(Primitive):
    """A staged function as one instruction; on Tensors what it does is done anew."""

    def __init__(self, name: str, body: Body) -> None:
        super().__init__("jit", self._forward, ())
        self.title, self.body = name, body
        self.multi = self.kinds = True
        self.shape = lambda *given, **params: body.results
        self.checks = any(step.prim.checks for step in body.steps)
        self.outward = any(step.prim.outward for step in body.steps)

    def _forward(self, *arrays: Any) -> list:
        return self.body.run()(list(arrays))

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        if any(getattr(a, "has_data", True) is False for a in arrays):
            return next(a for a in arrays if not getattr(a, "has_data", True)).run(
                self, arrays, params
            )
        return self.body.run()(list(arrays))

    def __call__(self, *args: Any, **params: Any) -> Any:
        if any(isinstance(a, Tensor) for a in args):
            level = _stage_of(args)
            if level is not None and not any(a.graph_node() is not None for a in args):
                return level.process(self, args, params)
            return tuple(self.body(*args))
        return self.compute(args, params)


# --- calls ----------------------------------------------------------------------------------------
class Kind(NamedTuple):
    """A call: its values, and what tells it from calls of other kinds."""

    key: tuple
    values: list[Any]
    avals: tuple[Aval, ...]
    form: Any
    fixed: tuple


class Captured:
    """A function of arrays on several ranks, captured for one kind of call."""

    def __init__(self, fun: Callable, avals: Sequence[Aval]) -> None:
        self.fun, self.avals = fun, avals
        self.weak: list[bool] = []
        self.run = dt.compile(self._of)

    def _of(self, *tensors: Tensor) -> list[Tensor]:
        arrays = [wrap(t, a.weak) for t, a in zip(tensors, self.avals, strict=True)]
        leaves, self.form = _registry.flatten(self.fun(arrays))
        outs = [as_array(x) for x in leaves]
        self.weak = [o.weak_type for o in outs]
        return [summed(o._value) for o in outs]

    def __call__(self, values: Sequence[Tensor]) -> Any:
        """The result for these values."""
        outs = self.run(*values)
        return self.form.build(iter([wrap(o, w) for o, w in zip(outs, self.weak, strict=True)]))


class Jitted:
    """A function under ``jit``."""

    def __init__(self, fun: Callable, **settings: Any) -> None:
        functools.update_wrapper(self, fun, updated=())
        self.fun, self.settings = fun, settings
        self.statics = Statics(fun, settings.get("static_argnums"), settings.get("static_argnames"))
        self._own: dict = {}
        self.placed = any(settings.get(f"{way}_shardings") is not None for way in ("in", "out"))

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<PjitFunction of {self.fun!r}>"

    @property
    def traces(self) -> dict[tuple, Trace]:
        """What was staged, by kind of call: common to all ``jit`` of one function."""
        slots = thread.rank.slots
        known = slots.get(_TRACES)
        if known is None:
            known = slots[_TRACES] = weakref.WeakKeyDictionary()
        try:
            return known.setdefault(self.fun, {})
        except TypeError:  # (there is no weak reference to it)
            return self._own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.placed:
            fixed = {n % len(args) for n in self.statics.argnums if args}
            args = sharding.entered(self.settings["in_shardings"], args, kwargs, fixed)
            return sharding.left(self.settings["out_shardings"], self._called(args, kwargs))
        return self._called(args, kwargs)

    def _called(self, args: tuple, kwargs: dict) -> Any:
        if thread.rank.slots.get(DISABLED) or tracked():
            return self.fun(*args, **kwargs)
        call = self.kind(args, kwargs)
        values = [as_array(v)._value for v in call.values]
        if over_ranks(values):
            return self._captured(call, values)
        trace = self.staged(call)
        return trace(values)

    def _captured(self, call: Kind, values: list) -> Any:
        """The result of values that lie on several ranks: by the compiler's capture, which sees how
        they do."""
        found = self._own.get(call.key)
        if found is None:
            found = self._own[call.key] = Captured(self._of(call), call.avals)
        return found(values)

    def kind(self, args: tuple, kwargs: dict) -> Kind:
        """What kind of call it is."""
        dynamic, others, fixed = self.statics.split(args, kwargs)
        values, form = _registry.flatten((dynamic, others))
        avals = tuple([self._aval(v, i, args, kwargs, form) for i, v in enumerate(values)])
        key = (form, avals, fixed, enabled_x64(), bound())
        return Kind(key, values, avals, form, fixed)

    def _aval(self, value: Any, i: int, args: tuple, kwargs: dict, form: Any) -> Aval:
        try:
            return (
                aval_of(value) if isinstance(value, ShapeDtypeStruct) else aval_of(as_array(value))
            )
        except TypeError:
            raise TypeError(
                f"Error interpreting argument to {self.fun} as an abstract array. The problematic "
                f"value is of type {type(value)} and was passed to the function at path "
                f"{_argument(self.statics.signature, form, i, args, kwargs)}.\nThis "
                f"typically means "
                "that a jit-wrapped function was called with a non-array argument, and this "
                "argument was not marked as static using the static_argnums or static_argnames "
                "parameters of jax.jit."
            ) from None

    def staged(self, call: Kind, transform: str = "jit") -> Trace:
        """The program of calls of that kind."""
        traces = self.traces
        found = traces.get(call.key)
        if found is None:
            found = Trace(self.about(call, transform), self._of(call), call.avals)
            if found.keeps:
                traces[call.key] = found
        return found

    def _of(self, call: Kind) -> Callable:
        """The function of the values alone."""
        fun, form, fixed = self.fun, call.form, call.fixed

        def of(arrays: list) -> Any:
            args, kwargs = form.build(iter(arrays))
            whole = list(args)
            for k, _, value in fixed:
                if isinstance(k, int):
                    whole[k] = value
                else:
                    kwargs[k] = value
            return fun(*whole, **kwargs)

        of.__name__ = getattr(fun, "__name__", type(fun).__name__)
        return of

    def about(self, call: Kind, transform: str) -> About:
        """What is staged, in messages."""
        code = getattr(inspect.unwrap(self.fun), "__code__", None)
        name = getattr(self.fun, "__name__", repr(self.fun))
        place = f" at {code.co_filename}:{code.co_firstlineno}" if code else ""
        return About(f"{name}{place}", transform, functools.partial(self._names, call.form))

    def _names(self, form: Any) -> list[str]:
        args, kwargs = form.unflatten(range(form.num_leaves))
        count = form.num_leaves
        return [_argument(self.statics.signature, form, i, args, kwargs) for i in range(count)]

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Stage it for such a call."""
        call = self.kind(args, kwargs)
        return Traced(self, call, self.staged(call))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Stage it for such a call, ready to be compiled."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and types of the result."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget what was staged."""
        self.traces.clear()

    def _cache_size(self) -> int:
        return len(self.traces)


def _argument(signature: Any, form: Any, i: int, args: tuple, kwargs: dict) -> str:
    paths = list(_registry.paths(form.unflatten(range(form.num_leaves))))
    path = paths[i][0]
    rest = "".join(map(str, path[2:]))
    try:
        bound = list(signature.bind(*args, **kwargs).arguments)
        name = bound[path[1].idx] if hasattr(path[1], "idx") else path[1].key
    except (TypeError, AttributeError, IndexError):
        return f"args{''.join(map(str, path[1:]))}"
    return f"{name}{rest}"


class Traced:
    """A function staged for one kind of call."""

    def __init__(self, jitted: Jitted, call: Kind, trace: Trace) -> None:
        self._jitted, self._call, self._trace = jitted, call, trace
        self.fun_name = trace.name

    @property
    def out_info(self) -> Any:
        """Shapes and types of the result."""
        return self._trace.form.build(iter([a.struct() for a in self._trace.out_avals]))

    @property
    def jaxpr(self) -> Any:
        """The program."""
        return closed_jaxpr(self._trace)

    def lower(self, **_: Any) -> Lowered:
        """Ready to be compiled."""
        return Lowered(self)


class Lowered:
    """A staged function, ready to be compiled."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced

    @property
    def out_info(self) -> Any:
        """Shapes and types of the result."""
        return self._traced.out_info

    def as_text(self, dialect: str | None = None, **_: Any) -> str:
        """The program as text."""
        return str(self._traced.jaxpr)

    def compile(self, *_: Any, **__: Any) -> Executable:
        """The program, to be called with arguments of that kind."""
        return Executable(self._traced)


class Executable:
    """A compiled function: takes calls of one kind."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced

    def as_text(self) -> str:
        """The program as text."""
        return str(self._traced.jaxpr)

    def cost_analysis(self) -> dict:
        """Nothing is known of costs."""
        return {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        traced = self._traced
        statics = traced._jitted.statics
        fixed = {k for k, *_ in traced._call.fixed if isinstance(k, int)}
        whole = list(args)  # (what was static is not given again)
        for i in sorted(fixed):
            whole.insert(i, None)
        values, form = _registry.flatten((tuple(whole), kwargs))
        if form != traced._call.form:
            raise TypeError(
                "Function compiled with input pytree does not match the input pytree it was called "
                f"with: {form} given, {traced._call.form} needed"
            )
        arrays = [as_array(v) for v in values]
        pairs = list(zip(traced._call.avals, arrays, strict=True))
        odd = [i for i, (a, v) in enumerate(pairs) if (a.shape, a.dtype) != (v.shape, v.dtype)]
        if odd:
            whole_args = tuple(whole)
            lines = [
                f"Argument '{_argument(statics.signature, form, n, whole_args, kwargs)}' compiled "
                f"with {_short(pairs[n][0])} and called with {_short(aval_of(arrays[n]))}"
                for n in odd
            ]
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled. "
                "Perhaps you are calling the compiled executable with a different enable_x64 mode "
                "than when it was AOT compiled? The mismatches are:\n" + "\n".join(lines)
            )
        return traced._trace([a._value for a in arrays])


def _short(aval: Aval) -> str:
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


def jit(
    fun: Callable | None = None, *, in_shardings: Any = None, out_shardings: Any = None,
    static_argnums: Any = None, static_argnames: Any = None, donate_argnums: Any = None,
    donate_argnames: Any = None, keep_unused: bool = False, device: Any = None,
    backend: str | None = None, inline: bool = False, abstracted_axes: Any = None,
    compiler_options: dict | None = None,
) -> Any:  # fmt: skip
    """``fun``, staged once for each kind of call and run as a program from then on. (Memory that is
    donated is not used again.)"""
    settings = {
        "static_argnums": static_argnums, "static_argnames": static_argnames,
        "in_shardings": in_shardings, "out_shardings": out_shardings,
    }  # fmt: skip
    if fun is None:
        return functools.partial(jit, **settings)
    check_callable(fun)
    return Jitted(fun, **settings)


def make_jaxpr(
    fun: Callable, static_argnums: Any = (), axis_env: Any = None, return_shape: bool = False
) -> Callable:
    """A function of ``fun``'s arguments that gives its program."""
    check_callable(fun)
    jitted = Jitted(fun, static_argnums=static_argnums)

    def make_jaxpr_f(*args: Any, **kwargs: Any) -> Any:
        call = jitted.kind(args, kwargs)
        traced = Traced(jitted, call, jitted.staged(call, "make_jaxpr"))
        return (traced.jaxpr, traced.out_info) if return_shape else traced.jaxpr

    return named(make_jaxpr_f, fun)


def eval_shape(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """Shapes and types of ``fun``'s result, of arguments of which these alone count."""
    jitted = Jitted(fun)
    call = jitted.kind(args, kwargs)
    return Traced(jitted, call, jitted.staged(call, "eval_shape")).out_info


def clear_caches() -> None:
    """Forget all that was staged."""
    thread.rank.slots.pop(_TRACES, None)


def closed_jaxpr(trace: Trace) -> jaxpr.ClosedJaxpr:
    """The program in JAX's form."""
    staged = trace.staged
    weak = [a.weak for a in trace.avals]
    told, consts = listed(jaxpr.STYLE, staged.body, staged.consts, weak, trace.weak)
    return jaxpr.ClosedJaxpr(told, [wrap(c) for c in consts])


__all__ = [
    "ShapeDtypeStruct", "clear_caches", "eval_shape", "jit", "make_jaxpr",
]  # fmt: skip
