"""Resizing a dimension by a matrix (new places, old ones): what each new element is made of.
Knows sizes and numbers, no tensors."""

from __future__ import annotations

import math

import numpy as np

SMOOTH = ("bilinear", "bicubic")  # for which there are filters without aliasing
_LARGEST = 1 << 15  # of a weight as a whole number
_MOST_BITS = 22


def sampled(mode: str, size: int, out: int, scale: float | None, corners: bool) -> np.ndarray:
    """Interpolated between the nearest old places; ``mode``: "bicubic" or linear."""
    taps = _cubic if mode == "bicubic" else _linear
    return taps(size, out, _positions(size, out, scale, corners, mode == "bicubic"))


def smooth(mode: str, size: int, out: int, scale: float | None, corners: bool) -> np.ndarray:
    """Averaged, where it becomes smaller, over all old places that a new one covers, as image
    libraries do: a triangle, or Keys' cubic with a = -0.5, as wide as the step."""
    if corners:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = size / out if scale is None else 1.0 / scale
    wide = max(step, 1.0)
    reach = (2.0 if mode == "bicubic" else 1.0) * wide
    shape = _keys if mode == "bicubic" else _triangle
    matrix = np.zeros((out, size))
    for i in range(out):
        centre = step * (i + 0.5)
        low = max(int(centre - reach + 0.5), 0)
        count = min(int(centre + reach + 0.5), size) - low
        count = max(min(count, math.ceil(reach) * 2 + 1), 0)
        weights = shape((np.arange(count) + low - centre + 0.5) / wide)
        total = weights.sum()
        matrix[i, low : low + count] = weights / total if total else weights
    return matrix


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _keys(x: np.ndarray) -> np.ndarray:
    d = np.abs(x)
    near = (1.5 * d - 2.5) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * -0.5
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def fixed_point(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """The weights times 2^bits, rounded, and ``bits``: as many as the largest one has room for in
    16 bits."""
    most, bits = float(matrix.max(initial=0.0)), 0
    while bits < _MOST_BITS and int(0.5 + most * (1 << (bits + 1))) < _LARGEST:
        bits += 1
    scaled = matrix * (1 << bits)
    return np.trunc(scaled + np.where(scaled < 0, -0.5, 0.5)), bits


def _positions(size: int, out: int, f: float | None, corners: bool, cubic: bool) -> np.ndarray:
    """Where the centres of ``out`` new places lie among the ``size`` old ones."""
    i = np.arange(out, dtype=np.float64)
    if corners:
        return i * ((size - 1) / (out - 1) if out > 1 else 0.0)
    places = (i + 0.5) * (size / out if f is None else 1.0 / f) - 0.5
    return places if cubic else np.maximum(places, 0.0)


def _linear(size: int, out: int, places: np.ndarray) -> np.ndarray:
    low = np.minimum(places.astype(np.int64), size - 1)
    share = places - low
    matrix = np.zeros((out, size))
    rows = np.arange(out)
    np.add.at(matrix, (rows, low), 1 - share)
    np.add.at(matrix, (rows, np.minimum(low + 1, size - 1)), share)
    return matrix


def _cubic(size: int, out: int, places: np.ndarray) -> np.ndarray:
    """Keys' cubic convolution with a = -0.75."""
    low = np.floor(places).astype(np.int64)
    matrix = np.zeros((out, size))
    for tap in (-1, 0, 1, 2):
        d = np.abs(places - (low + tap))
        near = (1.25 * d - 2.25) * d * d + 1
        far = ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0
        weight = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
        np.add.at(matrix, (np.arange(out), np.clip(low + tap, 0, size - 1)), weight)
    return matrix


def area(size: int, out: int) -> np.ndarray:
    """The means of ``out`` regions."""
    i = np.arange(out)
    low, high = i * size // out, -((-(i + 1) * size) // out)
    places = np.arange(size)[None, :]
    return ((places >= low[:, None]) & (places < high[:, None])) / (high - low)[:, None]
