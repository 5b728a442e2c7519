"""``torch.testing``: ``assert_close`` and ``make_tensor``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...ops.functions.args import size as as_size

_TOLERANCES = {  # rtol, atol by type; exact for the others
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = False, check_dtype: bool = True, msg: str | None = None, **ignored: object,
) -> None:  # fmt: skip
    """Raise AssertionError unless both (or all elements of two sequences) are close."""
    if isinstance(actual, (list, tuple)):
        for a, b in zip(actual, expected, strict=True):
            assert_close(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, msg=msg)
        return
    a, b = _array(actual), _array(expected)
    both = isinstance(actual, Tensor) and isinstance(expected, Tensor)
    if both and check_dtype and actual.dtype is not expected.dtype:
        raise AssertionError(msg or f"dtypes differ: {actual.dtype} and {expected.dtype}")
    if a.shape != b.shape:
        raise AssertionError(msg or f"shapes differ: {list(a.shape)} and {list(b.shape)}")
    default = _TOLERANCES.get(a.dtype.name, (0.0, 0.0))
    r = default[0] if rtol is None else rtol
    t = default[1] if atol is None else atol
    wide = np.float64 if a.dtype.kind != "c" else np.complex128
    np.testing.assert_allclose(
        a.astype(wide), b.astype(wide), rtol=r, atol=t, equal_nan=equal_nan, err_msg=msg or ""
    )


def make_tensor(
    *shape: object, dtype: object, device: Any = None, low: float | None = None,
    high: float | None = None, requires_grad: bool = False, noncontiguous: bool = False,
    exclude_zero: bool = False, memory_format: object = None,
) -> Tensor:  # fmt: skip
    """A tensor of random numbers: from [-9, 9] for floating and complex types, from [-9, 9] or what
    the type holds of it for whole numbers; of every second place where ``noncontiguous``."""
    kind = dtypes.as_dtype(dtype)
    sizes = as_size(shape, "make_tensor")
    if kind is dtypes.bool:
        first, last = 0, 2
    elif kind.np.kind in "iu":
        info = np.iinfo(kind.np)
        first = int(max(info.min, -9 if low is None else low))
        last = int(min(info.max, 10 if high is None else high))
    if kind is dtypes.bool or kind.np.kind in "iu":
        out = ops.randint(first, max(last, first + 1), sizes, dtype=kind, device=device)
    else:
        start, end = -9.0 if low is None else low, 9.0 if high is None else high
        part = dtypes.of(np.dtype(f"f{kind.itemsize // 2}")) if kind.is_complex else kind
        out = _between(sizes, start, end, part, device)
        if kind.is_complex:
            out = ops.complex(out, _between(sizes, start, end, part, device))
    if noncontiguous and out.numel() > 1:
        out = ops.repeat_interleave(out, 2, -1)[..., ::2]
    if exclude_zero:
        out[out == 0] = 1 if kind.np.kind in "iub" else dtypes.finfo(kind).tiny
    return out.requires_grad_() if requires_grad else out


def _between(sizes: tuple, low: float, high: float, kind: Any, device: Any) -> Tensor:
    return ops.rand(*sizes, dtype=kind, device=device) * (high - low) + low


def _array(value: object) -> np.ndarray:
    return value.detach().array if isinstance(value, Tensor) else np.asarray(value)
