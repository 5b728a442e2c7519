"""``torch.testing``: ``assert_close`` and ``make_tensor``."""

from __future__ import annotations

from collections.abc import Mapping
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
    equal_nan: bool = False, check_dtype: bool = True, msg: Any = None, **ignored: object,
) -> None:  # fmt: skip
    """Raise AssertionError unless both (or all values of two sequences or mappings) are close.
    ``msg``: what is said then, or a function of what would be said."""
    if (rtol is None) != (atol is None):
        raise ValueError(
            "Both 'rtol' and 'atol' must be either specified or unspecified, but got "
            f"rtol={rtol} and atol={atol}"
        )
    try:
        _compare(actual, expected, rtol, atol, equal_nan, check_dtype)
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


def _compare(
    actual: Any, expected: Any, rtol: float | None, atol: float | None, equal_nan: bool,
    check_dtype: bool,
) -> None:  # fmt: skip
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            raise AssertionError(f"keys differ: {list(actual)} and {list(expected)}")
        actual, expected = list(actual.values()), [expected[k] for k in actual]
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)):
        if len(actual) != len(expected):
            raise AssertionError(f"lengths differ: {len(actual)} and {len(expected)}")
        for a, b in zip(actual, expected, strict=True):
            _compare(a, b, rtol, atol, equal_nan, check_dtype)
        return
    a, b = _array(actual), _array(expected)
    both = isinstance(actual, Tensor) and isinstance(expected, Tensor)
    if both and check_dtype and actual.dtype is not expected.dtype:
        raise AssertionError(f"dtypes differ: {actual.dtype} and {expected.dtype}")
    if a.shape != b.shape:
        raise AssertionError(f"shapes differ: {list(a.shape)} and {list(b.shape)}")
    each = [_TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (a, b)]
    r = max(e[0] for e in each) if rtol is None else rtol  # of two types the wider tolerance
    t = max(e[1] for e in each) if atol is None else atol
    if not (r or t) and a.dtype.kind in "iub" and b.dtype.kind in "iub":
        np.testing.assert_array_equal(a, b)  # float64 cannot tell large ones from each other
        return
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=r, atol=t, equal_nan=equal_nan)


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
    return value.detach().cpu().array if isinstance(value, Tensor) else np.asarray(value)
