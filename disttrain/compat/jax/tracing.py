"""What Python may know of an Array: its numbers, where it has some; else JAX's error. And how a
value of a transform is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.gate import Tracer
from ...core.tensor import Tensor
from ...distributed.spmd.arrays import is_here, summed
from ...distributed.tensor import DTensor
from ...func.jvp import DualTracer
from ...func.staging import StagedTracer
from ...func.trees.flat import is_traced
from ...func.trees.listing import short_kind
from ...func.vmap import BatchTracer
from . import errors


def concrete(array: Any, error: Callable[[Any], Exception]) -> Tensor:
    """The plain Tensor that has the numbers of ``array``; ``error(array)`` is raised where it is
    traced."""
    value = array._value
    if is_traced(value):
        top = value
        if isinstance(top, Tracer) and top.interp.over:
            raise leaked(array)
        raise error(array)
    plain = value.plain() if isinstance(value, Tracer) else value
    plain = plain.detach() if plain.requires_grad else plain
    return here(plain) if isinstance(plain, DTensor) else plain


def here(value: Any) -> Tensor:
    """The numbers of an array that lies on several ranks, where this one has all of them."""
    value = summed(value)
    if not is_here(value):
        raise RuntimeError(
            "Fetching value for `jax.Array` that spans non-addressable (non process local) devices "
            "is not possible. You can use `jax.experimental.multihost_utils.process_allgather` to "
            "print the global array or use `.addressable_shards` method of jax.Array to inspect "
            "the addressable (process local) shards."
        )
    local: Tensor = value.to_local()
    return local


def leaked(array: Any) -> Exception:
    """The error for a value that has outlived its function."""
    return errors.UnexpectedTracerError(
        f"Encountered an unexpected tracer. A function transformed by JAX had a side effect, "
        f"allowing for a reference to an intermediate value with type {errors.short(array)} to "
        "escape the scope of the transformation."
    )


def number(kind: str) -> Callable[[Any], Exception]:
    """The error of ``int``, ``float`` or ``complex`` of a traced value."""
    return lambda array: errors.ConcretizationTypeError(
        array,
        f"The problem arose with the `{kind}` function. If trying to convert the data type of a "
        f"value, try using `x.astype({kind})` or `jnp.array(x, {kind})` instead.",
    )


def method(name: str) -> Callable[[Any], Exception]:
    """The error of a method that gives numbers."""
    return lambda array: errors.ConcretizationTypeError(
        array, f"This occurred in the {name}() method of jax.Array"
    )


def aval_text(array: Any, short: bool = False) -> str:
    """Type and shape, with a tilde where the type is weak: ~float32[2,3]."""
    name = short_kind(array.dtype) if short else array.dtype.name
    return f"{'~' if array.weak_type else ''}{name}[{','.join(map(str, array.shape))}]"


def tracer_text(array: Any, wrap: Callable[..., Any]) -> str | None:
    """How a value of a transform prints; None for one that is of none."""
    value = array._value

    def inner(x: Tensor) -> str:
        within = wrap(x, array.weak_type)
        text = tracer_text(within, wrap)
        return str(np.asarray(within)) if text is None else text

    if not is_here(value):
        return f"Array(shape={array.shape}, dtype={array.dtype.name})"
    if value.graph_node() is not None:
        below = value.alias() if isinstance(value, Tracer) else value.detach()
        kind = short_kind(array.dtype)
        shape = ",".join(map(str, array.shape))
        return f"GradTracer(primal={inner(below)}, typeof(tangent)={kind}[{shape}])"
    if isinstance(value, StagedTracer):
        return f"JitTracer({aval_text(array)})"
    if isinstance(value, BatchTracer):
        if value.bdim is None:
            return tracer_text(wrap(value.inner, array.weak_type), wrap)
        batched = wrap(value.inner, array.weak_type)
        return f"VmapTracer(aval={aval_text(array)}, batched={aval_text(batched)})"
    if isinstance(value, DualTracer):
        if value.interp.deferred:
            kind, shape = short_kind(array.dtype), ",".join(map(str, array.shape))
            return f"GradTracer(primal={inner(value.inner)}, typeof(tangent)={kind}[{shape}])"
        if value.tangent is None:
            return tracer_text(wrap(value.inner, array.weak_type), wrap)
        return f"JVPTracer(primal={inner(value.inner)}, tangent={inner(value.tangent)})"
    return None
