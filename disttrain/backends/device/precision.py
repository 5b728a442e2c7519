"""How exact products of float32 matrices on accelerators are: one setting per rank, by PyTorch's
names. "highest": as float32 is. "high" and "medium": TF32, whose factors have 10 bits. And how
convolutions by a library are chosen, by the names of ``torch.backends.cudnn``."""

from __future__ import annotations

from typing import Any

from ... import context
from ...errors import ConfigError

LEVELS = ("highest", "high", "medium")
# The library is used; float32 may go through TF32; results have the same bits on each run (False:
# need not); the fastest of several ways is found by trying at most so many (0: all).
CONVOLUTION = {
    "enabled": True, "allow_tf32": True, "deterministic": True, "benchmark": False,
    "benchmark_limit": 10,
}  # fmt: skip
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


def convolution_setting(name: str) -> Any:
    """The calling rank's setting of that name in ``CONVOLUTION``."""
    return context.current().slots.get(f"convolution.{name}", CONVOLUTION[name])


def set_convolution(name: str, value: int) -> None:
    """Set it. Raises ``ConfigError`` for a value of another kind."""
    kind = type(CONVOLUTION[name])
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"backends.cudnn.{name}: {value!r} given; needed {kind.__name__}")
    context.current().slots[f"convolution.{name}"] = value
