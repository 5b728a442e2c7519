"""``custom_vjp``, ``custom_jvp`` and ``checkpoint``: JAX's names over ``func.trees.custom``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...func.trees.custom import CustomJvp, CustomVjp, recomputed
from .flat import BORDER
from .jit import Jitted


class custom_vjp(CustomVjp):  # noqa: N801  (JAX's name)
    """A function whose derivative in reverse mode is told by ``defvjp(fwd, bwd)``."""

    border = BORDER


class custom_jvp(CustomJvp):  # noqa: N801  (JAX's name)
    """A function whose derivative is told by ``defjvp``."""

    border = BORDER


def checkpoint(
    fun: Callable | None = None, *, prevent_cse: bool = True, policy: Callable | None = None,
    static_argnums: int | Sequence[int] = (), concrete: bool = False,
) -> Any:  # fmt: skip
    """``fun``, of which backward keeps the arguments, and computes it once more. (Policies are
    taken, and all is computed once more: what is saved are results' bits, not memory.)"""
    if fun is None:
        return functools.partial(checkpoint, prevent_cse=prevent_cse, static_argnums=static_argnums)
    if not callable(fun):
        return functools.partial(_not_callable, fun)
    return recomputed(Jitted(fun, static_argnums), prevent_cse)


def _not_callable(fun: Any, *_: Any, **__: Any) -> Any:
    raise TypeError(f"Expected a callable value, got {fun!r}")


class checkpoint_policies:  # noqa: N801  (JAX's name)
    """Which results ``checkpoint`` is to keep: names that are taken."""

    everything_saveable = staticmethod(lambda *_, **__: True)
    nothing_saveable = staticmethod(lambda *_, **__: False)
    dots_saveable = checkpoint_dots = staticmethod(lambda *_, **__: True)
    dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = dots_saveable
    save_only_these_names = staticmethod(lambda *_: lambda *_, **__: False)
    save_any_names_but_these = staticmethod(lambda *_: lambda *_, **__: True)
    save_anything_except_these_names = save_any_names_but_these


__all__ = [
    "checkpoint", "checkpoint_policies", "custom_jvp", "custom_vjp",
]  # fmt: skip
