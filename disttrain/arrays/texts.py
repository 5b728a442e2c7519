"""Arrays of bytes, and arrays as short texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..ops import api as ops


def each(fn: Callable[..., Any], texts: np.ndarray, *args: Any, kind: Any = None) -> Any:
    """``fn`` of each text: texts, or a tensor of the type ``kind``."""
    made = [fn(x, *args) for x in texts.reshape(-1)]
    if kind is not None:
        return ops.tensor(made, dtype=kind).reshape(list(texts.shape))
    out = np.empty(len(made), object)
    out[:] = made
    return out.reshape(texts.shape)


def joined(parts: Sequence[np.ndarray], between: bytes = b"") -> np.ndarray:
    """Texts one after the other, with ``between``."""
    first, *others = parts
    for other in others:
        first = first + between + other if between else first + other
    return np.asarray(first, object)


def number(text: bytes) -> float:
    """The number that a text says."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"StringToNumberOp could not correctly convert string: {text.decode()}"
        ) from None


def of_numbers(x: Tensor, precision: int = -1) -> np.ndarray:
    """The text of each number, with so many places after the point."""
    real = x.dtype.is_floating_point
    word = "%d" if not real else "%f" if precision < 0 else f"%.{precision}f"
    flags = str(x.dtype).endswith("bool")
    array = np.asarray(x.detach().numpy())
    return each(lambda v: (str(bool(v)).lower() if flags else word % v).encode(), array)


def equal(a: np.ndarray, b: np.ndarray) -> Tensor:
    """Whether texts are the same."""
    return ops.tensor(np.asarray(a == b, np.bool_))


def brief(array: Any, edge: int) -> str:
    """The first and last ``edge`` of each dimension (-1: all), without commas."""
    array = np.asarray(array)
    if not array.ndim:
        value = array.item()
        if isinstance(value, bytes):
            return value.decode()
        value = int(value) if isinstance(value, bool) else value
        return f"{value:.8g}" if isinstance(value, float) else str(value)
    edge = len(array) if edge == -1 else edge
    rows = [*array] if len(array) <= 2 * edge else [*array[:edge], None, *array[-edge:]]
    parts = ["..." if row is None else brief(row, edge) for row in rows]
    return "[" + (" " if array.ndim == 1 else "\n ").join(parts) + "]"


def differences(sign: str, good: Tensor, a: Tensor, b: Tensor) -> str:
    """Where ``a sign b`` does not hold, as ``good`` says: the first places and numbers."""
    a, b = (v.expand(good.shape) for v in (a, b))
    bad = ~good
    at = ops.argwhere(bad)
    shown = {"x": (a[bad], a.reshape(-1)), "y": (b[bad], b.reshape(-1))}
    lines = [f"Condition x {sign} y did not hold.",
             f"Indices of first {min(len(at), 3)} different values:",
             str(at[:3].numpy())]  # fmt: skip
    lines += [f"Corresponding {w} values:\n{v[:3].detach().numpy()}" for w, (v, _) in shown.items()]
    lines += [f"First {min(3, v.numel())} elements of {w}:\n{v[:3].detach().numpy()}"
              for w, (_, v) in shown.items()]  # fmt: skip
    return "\n".join(lines)
