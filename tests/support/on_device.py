"""A primitive on the host and on the strict double, by numpy's arrays."""

from __future__ import annotations

import numpy as np

from disttrain.backends.device.array import DeviceArray
from disttrain.backends.device.platform import platform
from disttrain.ops.declare import REGISTRY


def place(a, index=0):
    """An array with axes as one of the device; everything else as it is."""
    if not isinstance(a, np.ndarray) or not a.ndim:
        return a
    cuda = platform("cuda")
    return DeviceArray(cuda.upload(a, index), cuda, index)


def back(a):
    return a.to_host() if isinstance(a, DeviceArray) else np.asarray(a)


def many(result):
    return result if isinstance(result, tuple) else (result,)


def on_device(name, *args, **params):
    """The results of a primitive there, as numpy's arrays. The host must not have waited for it."""
    counts, given = platform("cuda").counts, [place(a) for a in args]
    before = list(counts.waits)
    results = many(REGISTRY[name].compute(given, params))
    assert counts.waits == before
    return tuple(back(r) for r in results)


def on_host(name, *args, **params):
    with np.errstate(all="ignore"):
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        return tuple(np.asarray(r) for r in many(REGISTRY[name].compute(given, params)))


def close(got, want, tol=0.0):
    """Equal in shape and type, and in value but for ``tol``."""
    assert got.shape == want.shape and got.dtype == want.dtype
    wide = np.complex128 if want.dtype.kind in "cV" else want.dtype
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tol, atol=tol)


def agree(name, *args, tol=0.0, **params):
    """The device gives what the host gives."""
    for got, want in zip(on_device(name, *args, **params), on_host(name, *args, **params)):
        close(got, want, tol)
