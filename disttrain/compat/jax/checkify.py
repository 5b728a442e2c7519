"""``jax.experimental.checkify``: JAX's names over ``func.trees.asserts``."""

from __future__ import annotations

from typing import Any

from ...func.trees import asserts
from ...func.trees.asserts import CheckFailed as JaxRuntimeError
from ...func.trees.asserts import Error, check_error, checkify
from . import errors
from .array import Array
from .tracing import is_traced

user_checks = all_checks = frozenset({JaxRuntimeError})
nan_checks = index_checks = div_checks = float_checks = automatic_checks = frozenset[Any]()


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Fail with ``msg`` unless ``pred`` holds."""
    if isinstance(pred, Array) and is_traced(pred._value):
        if debug:
            return
        raise errors.ConcretizationTypeError(
            pred, "checkify.check of a value that is traced: check outside of jit, vmap and grad"
        )
    asserts.check(pred, msg, *fmt_args, **fmt_kwargs)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """``check`` where ``checkify`` runs the function, nothing elsewhere."""
    if asserts.running():
        check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


NAMES = {
    "Error": Error, "JaxRuntimeError": JaxRuntimeError, "check": check, "checkify": checkify,
    "check_error": check_error, "debug_check": debug_check, "user_checks": user_checks,
    "all_checks": all_checks, "nan_checks": nan_checks, "index_checks": index_checks,
    "div_checks": div_checks, "float_checks": float_checks, "automatic_checks": automatic_checks,
}  # fmt: skip
