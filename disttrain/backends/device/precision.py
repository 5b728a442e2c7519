"""How exact products of float32 matrices on accelerators are: one setting per rank, by PyTorch's
names. "highest": as float32 is. "high" and "medium": TF32, whose factors have 10 bits."""

from __future__ import annotations

from ... import context
from ...errors import ConfigError

LEVELS = ("highest", "high", "medium")
_MATMUL, _REDUCED = "float32_matmul_precision", "reduced_precision_reduction"


def matmul_precision() -> str:
    """The calling rank's setting."""
    return context.current().slots.get(_MATMUL, "highest")


def set_matmul_precision(level: str) -> None:
    """Set it. Raises ``ConfigError`` for another word."""
    if level not in LEVELS:
        raise ConfigError(
            f"set_float32_matmul_precision: {level!r} given; needed one of {', '.join(LEVELS)}"
        )
    context.current().slots[_MATMUL] = level


def reduced_reduction(kind: str) -> bool:
    """Whether products of matrices of ``kind`` ("float16", "bfloat16") may add up parts in that
    type: as in PyTorch they may, unless told not to."""
    return context.current().slots.get(f"{kind}.{_REDUCED}", True)


def set_reduced_reduction(kind: str, allowed: bool) -> None:
    """Set it for the calling rank."""
    context.current().slots[f"{kind}.{_REDUCED}"] = bool(allowed)
