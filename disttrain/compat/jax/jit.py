"""``jit``, and what shows its programs (``make_jaxpr``, ``eval_shape``, ``lower``): JAX's names and
settings of ``func.trees.programs``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...distributed.spmd.programs import PlacedPrograms
from ...func.structured_bodies import Aval
from ...func.trees.flat import check_callable, named
from ...func.trees.programs import Call, Executable, clear_caches
from . import jaxpr, sharding
from .avals import ShapeDtypeStruct, aval_of, struct
from .flat import BORDER
from .types import enabled_x64


class Jitted(PlacedPrograms):
    """A function under ``jit``."""

    border, style, world = BORDER, jaxpr.STYLE, staticmethod(enabled_x64)

    def __init__(
        self, fun: Callable, static_argnums: Any = None, static_argnames: Any = None,
        in_shardings: Any = None, out_shardings: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(fun, static_argnums, static_argnames)
        self.shardings = in_shardings, out_shardings

    def __repr__(self) -> str:
        return f"<PjitFunction of {self.fun!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entering, leaving = self.shardings
        if entering is None and leaving is None:
            return super().__call__(*args, **kwargs)
        fixed = {n % len(args) for n in self.statics.argnums if args}
        args = sharding.PLACEMENT.entered(entering, args, kwargs, fixed)
        return sharding.PLACEMENT.left(leaving, super().__call__(*args, **kwargs))

    def aval(self, value: Any) -> Aval:
        """Shape and type of an argument, which may be told alone."""
        return aval_of(value) if isinstance(value, ShapeDtypeStruct) else super().aval(value)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Stage it for such a call."""
        return self._traced(self.kind(args, kwargs), "jit")

    def _traced(self, call: Call, transform: str) -> Traced:
        return Traced(self, call, self.staged(call, transform))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Stage it for such a call, ready to be compiled."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and types of the result."""
        return self.trace(*args, **kwargs).out_info


class Traced(Executable):
    """A function staged for one kind of call."""

    fun_name = property(lambda self: self._program.name)

    @property
    def out_info(self) -> Any:
        """Shapes and types of the result."""
        return self._program.form.build(iter([struct(a) for a in self._program.out_avals]))

    @property
    def jaxpr(self) -> Any:
        """The program."""
        return jaxpr.ClosedJaxpr(*self._program.listing(jaxpr.STYLE))

    def lower(self, **_: Any) -> Lowered:
        """Ready to be compiled."""
        return Lowered(self._programs, self._call, self._program)


class Lowered(Traced):
    """A staged function, ready to be compiled."""

    def compile(self, *_: Any, **__: Any) -> Executable:
        """The program, to be called with arguments of that kind."""
        return Executable(self._programs, self._call, self._program)


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
    jitted = Jitted(fun, static_argnums)

    def make_jaxpr_f(*args: Any, **kwargs: Any) -> Any:
        traced = jitted._traced(jitted.kind(args, kwargs), "make_jaxpr")
        return (traced.jaxpr, traced.out_info) if return_shape else traced.jaxpr

    return named(make_jaxpr_f, fun)


def eval_shape(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """Shapes and types of ``fun``'s result, of arguments of which these alone count."""
    jitted = Jitted(fun)
    return jitted._traced(jitted.kind(args, kwargs), "eval_shape").out_info


__all__ = [
    "ShapeDtypeStruct", "clear_caches", "eval_shape", "jit", "make_jaxpr",
]  # fmt: skip
