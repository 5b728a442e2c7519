"""``pure_callback``, ``io_callback``, ``debug.print`` and ``debug.callback``: Python inside
programs."""

from __future__ import annotations

import string
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import wrap as tensor_of
from ...func.callbacks import METHODS, Callback
from . import tree
from .array import Array, wrap
from .avals import aval_of
from .errors import JaxRuntimeError
from .flat import as_array, check_callable

_registry = tree.default_registry


class _Arguments:
    """A tree of arguments whose arrays are handed over as Arrays of today."""

    def __init__(self, args: tuple, kwargs: dict, static: bool = False) -> None:
        leaves, self.form = _registry.flatten((args, kwargs))
        self.leaves = [x if static and not _is_array(x) else as_array(x) for x in leaves]
        self.tensors = [x._value for x in self.leaves if isinstance(x, Array)]

    def now(self, arrays: tuple, plain: bool = False) -> tuple[tuple, dict]:
        """(args, kwargs) with these arrays. ``plain``: as numpy's."""
        left = iter(arrays)
        made = [
            (np.asarray(next(left))[()] if plain else wrap(tensor_of(np.asarray(next(left)))))
            if isinstance(x, Array)
            else x
            for x in self.leaves
        ]
        return self.form.build(iter(made))


def _is_array(x: Any) -> bool:
    return isinstance(x, (Array, bool, int, float, complex, np.ndarray, np.generic)) or hasattr(
        x, "__jax_array__"
    )


def _called(
    name: str, callback: Callable, results: Any, args: tuple, kwargs: dict, **settings: Any
) -> Any:
    check_callable(callback)
    structs, form = _registry.flatten(results)
    avals = [aval_of(s) for s in structs]
    given = _Arguments(args, kwargs)

    def fn(metas: list, *arrays: Any) -> list:
        now, words = given.now(arrays)
        try:
            return _checked(callback(*now, **words), form, metas)
        except Exception as error:
            raise JaxRuntimeError(
                f"INTERNAL: CpuCallback error calling callback: {traceback.format_exc()}"
            ) from error

    metas = [(a.shape, a.dtype) for a in avals]
    prim = Callback(name, fn, metas, **settings)
    outs = prim(*given.tensors)
    return form.build(iter([wrap(_tensor(o)) for o in outs]))


def _tensor(out: Any) -> Any:
    return tensor_of(out) if isinstance(out, np.ndarray) else out


def _checked(found: Any, form: Any, metas: list) -> list:
    leaves, given = _registry.flatten(found)
    if given != form:
        raise RuntimeError(f"The callback returned {given}; {form} is expected")
    arrays = [np.asarray(x) for x in leaves]
    for x, (shape, _) in zip(arrays, metas, strict=True):
        if x.shape != tuple(shape):
            raise RuntimeError(f"Mismatched result shape: expected {shape}, got {x.shape}")
    return arrays


def pure_callback(
    callback: Callable, result_shape_dtypes: Any, *args: Any, sharding: Any = None,
    vmap_method: str | None = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """What ``callback`` gives for arrays; it may be called more often, or less, than it seems."""
    if vmap_method is not None and vmap_method not in METHODS:
        raise ValueError(
            f"vmap_method must be on of the allowed methods {list(METHODS)}, but got: {vmap_method}"
        )
    return _called(
        "pure_callback", callback, result_shape_dtypes, args, kwargs, method=vmap_method,
        no_derivative=ValueError(
            "Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while "
            "taking gradients."
        ),
        no_batch=NotImplementedError(
            "vmap is only supported for the pure_callback primitive when vmap_method is one of "
            "'sequential', 'sequential_unrolled', 'expand_dims', 'broadcast_all', or "
            f"'legacy_vectorized'. Got vmap_method={vmap_method}."
        ),
    )  # fmt: skip


def io_callback(
    callback: Callable, result_shape_dtypes: Any, *args: Any, sharding: Any = None,
    ordered: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """What ``callback`` gives for arrays; it is called whenever the program runs, in its order."""
    refused = None
    if ordered:
        refused = ValueError("Cannot `vmap` ordered IO callbacks.")
    return _called(
        "io_callback", callback, result_shape_dtypes, args, kwargs,
        method=None if ordered else "sequential", effect=True, no_batch=refused,
        no_derivative=ValueError(
            "IO callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while "
            "taking gradients."
        ),
    )  # fmt: skip


def debug_callback(
    callback: Callable, *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any
) -> None:
    """Call ``callback`` with arrays whenever the program runs; inside ``vmap`` for each example."""
    check_callable(callback)
    given = _Arguments(args, kwargs)

    def fn(_: list, *arrays: Any) -> list:
        now, words = given.now(arrays)
        callback(*now, **words)
        return []

    _run_debug("debug_callback", fn, given)


def _run_debug(name: str, fn: Callable, given: _Arguments) -> None:
    prim = Callback(name, fn, [], method="sequential", effect=True)
    prim(*given.tensors)


class _Format(string.Formatter):
    """As ``str.format``; keywords that it does not use are an error."""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [n for n in range(len(args)) if n not in used_args]
        if unused:
            raise ValueError(
                "Unused positional arguments to `jax.debug.print`: "
                f'{[args[n] for n in unused]}. You may be passing an f-string (i.e, `f"{{x}}"`) '
                "into `jax.debug.print` and instead should pass in a regular string."
            )
        names = [n for n in kwargs if n not in used_args]
        if names:
            raise ValueError(
                f"Unused keyword arguments to `jax.debug.print`: {names}. You may be passing an "
                'f-string (i.e, `f"{x}"`) into `jax.debug.print` and instead should pass in a '
                "regular string."
            )


def debug_print(
    fmt: str, *args: Any, ordered: bool = False, partitioned: bool = False,
    skip_format_check: bool = False, **kwargs: Any,
) -> None:  # fmt: skip
    """Print ``fmt`` with these values whenever the program runs."""
    if not skip_format_check:
        blank = {n: _Any() for n in kwargs}
        _Format().vformat(fmt, tuple(_Any() for _ in args), blank)
    given = _Arguments(args, kwargs, static=True)

    def fn(_: list, *arrays: Any) -> list:
        now, words = given.now(arrays, plain=True)
        print(fmt.format(*now, **words))
        return []

    _run_debug("debug_print", fn, given)


class _Any:
    """A value that can be formatted in any way, indexed and asked for anything."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getitem__(self, _: Any) -> _Any:
        return self

    def __getattr__(self, _: str) -> _Any:
        return self


def effects_barrier() -> None:
    """All effects have happened: they do when they are due."""


__all__ = [
    "debug_callback", "debug_print", "effects_barrier", "io_callback", "pure_callback",
]  # fmt: skip
