"""JAX's names of ``func.trees.transposes``; what is a name alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...func.trees.transposes import Transposes
from .custom import custom_vjp
from .jit import Jitted


def checkpoint_name(x: Any, name: str) -> Any:
    """``x``, under a name that policies of ``checkpoint`` may know."""
    return x


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """In the block what depends on no traced value is computed at once: it always is."""
    yield


_TRANSPOSES = Transposes(Jitted, custom_vjp)
NAMES = {
    **{n: getattr(_TRANSPOSES, n)
       for n in ("linear_transpose", "closure_convert", "custom_gradient", "fwd_and_bwd")},
    "ensure_compile_time_eval": ensure_compile_time_eval,
}  # fmt: skip
