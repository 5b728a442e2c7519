"""What libraries over JAX name beside what programs do: of its internals (``jax.extend``,
``interpreters``, ``api_util``, ``_src``) what they need to be imported and to run. Some of it
serves features that are not there (types and primitives of one's own), and is a name alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...arrays.program.updates import Box
from ...context import thread
from ...func.staging import known_results
from ...func.trees.listing import Named
from . import callbacks, config, jaxpr, lax, small_modules, tree
from .array import wrap
from .flat import as_array
from .jaxpr import ShapedArray

VERSION_INFO = (0, 10, 2)


class Name:
    """What is named, made, inherited from and noted, and has no meaning here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    @classmethod
    def add_type(cls, kind: type) -> None:
        """Taken note of."""


def _same(value: Any = None, *_: Any, **__: Any) -> Any:
    return value


class LaxPrimitive(Named):
    """A primitive, which programs compare with and apply."""

    __slots__ = ()

    def bind(self, *args: Any, **params: Any) -> Any:
        """The operation on these arguments."""
        return getattr(lax, self.name)(*args, **params)


class Primitive(Name):
    """One of one's own, which is what is said that it does: on values of all transforms."""

    multiple_results = False
    def_abstract_eval = def_effectful_abstract_eval = Name.__init__

    def __init__(self, name: str) -> None:
        self.name = name

    def def_impl(self, impl: Callable) -> Callable:
        """What it does."""
        self.bind = impl
        return impl


class Ref(Box):
    """An array in a box."""

    made = staticmethod(as_array)


class WrappedFun:
    """A function, for what stages it."""

    def __init__(self, f: Callable, *_: Any, **__: Any) -> None:
        self.f = self.call_wrapped = f


def flatten_fun(fun: WrappedFun, form: Any, keywords: bool = True) -> tuple:
    """``fun`` as a function of leaves, and what gives the form of its result, once it has run."""
    ends: list = []

    def flat(*leaves: Any) -> list:
        given = tree.tree_unflatten(form, leaves)
        args, kwargs = given if keywords else (given, {})
        out, end = tree.tree_flatten(fun.f(*args, **kwargs))
        ends[:] = [end]
        return out

    return WrappedFun(flat), lambda: ends[0]


def flatten_fun_nokwargs(fun: WrappedFun, form: Any) -> tuple:
    """The same of a function of positional arguments."""
    return flatten_fun(fun, form, False)


class PartialVal(tuple):
    """(type, None) of what is unknown; (None, value) of what is known."""

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        """Of that type."""
        return cls((aval, None))


def trace_to_jaxpr_nounits(fun: WrappedFun, given: Sequence[PartialVal], **_: Any) -> tuple:
    """Of a function of unknown values: (None, which results depend on them, and the values of the
    others, None)."""
    weak: list[bool] = []

    def of(*tensors: Any) -> list:
        outs = [as_array(x) for x in fun.f(*[wrap(t) for t in tensors])]
        weak[:] = [o.weak_type for o in outs]
        return [o._value for o in outs]

    found = known_results(of, [(a.shape, np.dtype(a.dtype)) for a, _ in given])
    outs = [
        (ShapedArray(meta[0], meta[1], w), None) if value is None else (None, wrap(value, w))
        for (meta, value), w in zip(found, weak, strict=True)
    ]
    return None, outs, None


def get_opaque_trace_state(convention: str = "") -> tuple:
    """What is equal where the same transforms run."""
    return tuple([id(level) for level in thread.stack])


def valid_jaxtype(x: Any) -> bool:
    """Whether it can be an argument of ``jit``."""
    try:
        as_array(x)
    except TypeError:
        return False
    return True


@contextmanager
def _block(*_: Any, **__: Any) -> Iterator[None]:
    yield


_P = {
    f"{n}_p": LaxPrimitive(n)
    for n in """abs acos acosh add and argmax argmin asin asinh atan atanh atan2 conj cos cosh div
    dot_general eq erf erf_inv erfc exp expm1 floor ge gt integer_pow le log log1p logistic lt max
    min mul ne neg pow rem rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan
    tanh""".split()
}
_CALLS = {f"{n}_p": Named(n) for n in ("jit", "call", "closed_call", "custom_jvp_call", "while")}
_EXTEND = {
    **{n: getattr(jaxpr, n) for n in ("ClosedJaxpr", "Jaxpr", "Literal", "Var")},
    "JaxprEqn": jaxpr.Equation, "get_opaque_trace_state": get_opaque_trace_state,
    "valid_jaxtype": valid_jaxtype, **dict.fromkeys(
        ("DropVar", "Effect", "TraceTag"), Name
    ), "Primitive": Primitive, "take_current_trace": _block, "set_current_trace": _block,
}  # fmt: skip
_HIJAX = """AbstractRef AbstractValue AvalMutableQDD AvalQDD HiPrimitive HiType MutableHiType Zero
VJPHiPrimitive control_flow_allowed_effects aval_method aval_property""".split()
_EVENTS = """clear_event_listeners record_event record_event_duration_secs record_event_time_span
record_scalar register_event_duration_secs_listener register_event_listener""".split()
_RULES: dict[str, dict[str, Any]] = {  # where those who make primitives note what they do
    "ad": {
        "primitive_jvps": {},
        "instantiate_zeros": _same,
        "primitive_transposes": {},
        "UndefinedPrimal": Name,
        "Zero": Name,
    },
    "batching": {"primitive_batchers": {}, "axis_primitive_batchers": {}, "not_mapped": None},
    "mlir": {"register_lowering": _same, "lower_fun": _same},
}

NAMES: dict[str, dict[str, Any]] = {  # by the module that has them under "jax"
    "lax": _P, "extend.core": _EXTEND, "extend.core.primitives": {**_P, **_CALLS},
    "extend.linear_util": {"wrap_init": WrappedFun, "transformation": _same},
    "extend.source_info_util": {"register_exclusion": _same},
    "api_util": {
        "debug_info": _same, "flatten_fun": flatten_fun,
        "flatten_fun_nokwargs": flatten_fun_nokwargs,
    },
    "interpreters.partial_eval": {
        "PartialVal": PartialVal, "trace_to_jaxpr_nounits": trace_to_jaxpr_nounits,
    },
    **{f"interpreters.{n}": names for n, names in _RULES.items()},
    "core": {
        "AbstractValue": ShapedArray, "valid_jaxtype": valid_jaxtype, "Trace": Name, "Atom": Any,
        "mapped_aval": _same, "unmapped_aval": _same,
    },
    "custom_derivatives": {"custom_jvp_call_p": _CALLS["custom_jvp_call_p"], "SymbolicZero": Name},
    "version": {"__version_info__": VERSION_INFO},
    "monitoring": dict.fromkeys(_EVENTS, _same),
    "experimental.hijax": {**dict.fromkeys(_HIJAX, Name), "register_hitype": _same},
    "experimental.layout": {"Layout": Name, "Format": Name},
    "experimental": {"enable_x64": config.NAMES["enable_x64"]},
    "_src.core": {"ShapedArray": ShapedArray},
    "_src.checkify": small_modules.NAMES["experimental.checkify"],
    "_src.dtypes": {**small_modules.NAMES["dtypes"], "ExtendedDType": Name, "DType": Any,
                    "TypePromotionError": ValueError},
    "_src.dispatch": {"wait_for_tokens": callbacks.effects_barrier}, "_src.literals": {},
    "_src.flatten_util": small_modules.NAMES["flatten_util"],
    "_src.traceback_util": {
        "api_boundary": _same, "register_exclusion": _same, "_exclude_paths": [],
    },
    "_src.state": {}, "_src.state.types": {"AbstractRef": Name},
    "_src.tree_util": {**tree.NAMES, "_registry": tree.default_registry.rules},
}  # fmt: skip
