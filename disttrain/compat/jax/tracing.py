"""What Python may know of an Array: its numbers, where it has some; else JAX's error. And how a
value of a transform is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...distributed.spmd.arrays import is_here, local
from ...func.trees.flat import is_traced as is_traced
from ...func.trees.printing import Names, numbers_of, text_of
from . import errors

_NAMES = Names("GradTracer", "JitTracer", "VmapTracer", "JVPTracer")


_FAR = (
    "Fetching value for `jax.Array` that spans non-addressable (non process local) devices is not "
    "possible. You can use `jax.experimental.multihost_utils.process_allgather` to print the "
    "global array or use `.addressable_shards` method of jax.Array to inspect the addressable "
    "(process local) shards."
)


def concrete(array: Any, error: Callable[[Any], Exception]) -> Tensor:
    """The plain Tensor that has the numbers of ``array``; ``error(array)`` is raised where it is
    traced."""
    found = numbers_of(array._value, lambda: error(array), lambda: leaked(array))
    whole: Tensor = found if found.__class__ is Tensor else local(found, _FAR)
    return whole


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


def tracer_text(array: Any, wrap: Callable[..., Any]) -> str | None:
    """How a value of a transform prints; None for one that is of none."""
    if not is_here(array._value):
        return f"Array(shape={array.shape}, dtype={array.dtype.name})"
    return text_of(
        array._value, array.weak_type, _NAMES, lambda x: str(np.asarray(wrap(x, array.weak_type)))
    )
