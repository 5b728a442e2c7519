"""``torch.testing.assert_close``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor

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
    equal_nan: bool = False, check_dtype: bool = True, msg: str | None = None, **ignored: Any,
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


def _array(value: Any) -> np.ndarray:
    return value.detach().array if isinstance(value, Tensor) else np.asarray(value)
