"""Histograms of observed numbers, and the limits of a grid that lose least of them. Arrays only.

What a grid from a to b of n steps s = (b - a) / n loses: within, rounding errors are spread evenly
over a step, s²/12 in the mean of squares; beyond, a number loses the square of its distance. Of all
pairs of candidates for a and b, the best is taken; 0 is always within.
"""

from __future__ import annotations

import numpy as np

_CANDIDATES = 256  # for each of the two limits

Histogram = tuple[np.ndarray, float, float]


def merged(old: Histogram | None, values: np.ndarray, bins: int) -> Histogram:
    """``old`` (counts, least, greatest) with ``values``. Where the range has grown, the numbers of
    a bin are spread evenly over those that it becomes."""
    low, high = float(values.min()), float(values.max())
    if old is None:
        return np.histogram(values, bins, _range(low, high))[0].astype(np.float64), low, high
    counts, least, most = old
    low, high = min(low, least), max(high, most)
    new = np.histogram(values, bins, _range(low, high))[0].astype(np.float64)
    if (low, high) == (least, most):
        return counts + new, low, high
    before, after = (
        np.linspace(*ends, bins + 1) for ends in (_range(least, most), _range(low, high))
    )
    total = np.concatenate(([0.0], np.cumsum(counts, dtype=np.float64)))
    return new + np.diff(np.interp(after, before, total)), low, high


def _range(low: float, high: float) -> tuple[float, float]:
    """With a width, for numbers that are all one."""
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def best_limits(
    counts: np.ndarray, low: float, high: float, steps: int, symmetric: bool
) -> tuple[float, float]:
    """(a, b) of the grid of so many steps that loses least of the numbers that were counted."""
    if not counts.any() or not high > low:
        return low, high
    edges = np.linspace(low, high, len(counts) + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    sums = [_sums(counts * middles**k) for k in range(3)]
    if symmetric:
        b = np.linspace(0, max(-low, high), _CANDIDATES + 1)[1:]
        a = -b
    else:
        ends = edges[np.unique(np.linspace(0, len(counts), _CANDIDATES + 1).astype(int))]
        pairs = np.meshgrid(np.unique(np.minimum(ends, 0)), np.unique(np.maximum(ends, 0)))
        a, b = (ends.ravel() for ends in pairs)
        a, b = a[b > a], b[b > a]
    first, last = (np.searchsorted(edges, ends).clip(0, len(counts)) for ends in (a, b))
    lost = _lost(sums, first, last, a, b, steps)
    k = int(np.argmin(lost))
    return float(max(a[k], min(low, 0.0))), float(min(b[k], max(high, 0.0)))


def _sums(values: np.ndarray) -> np.ndarray:
    return np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))


def _lost(
    sums: list[np.ndarray], first: np.ndarray, last: np.ndarray, a: np.ndarray, b: np.ndarray,
    steps: int,
) -> np.ndarray:  # fmt: skip
    """Squares of what each grid loses, summed: bins before ``first`` lie below ``a``, those from
    ``last`` on above ``b``."""
    mass, mean, square = sums
    within = (mass[last] - mass[first]) * ((b - a) / steps) ** 2 / 12
    below = square[first] - 2 * a * mean[first] + a * a * mass[first]
    above = (
        (square[-1] - square[last])
        - 2 * b * (mean[-1] - mean[last])
        + b * b * (mass[-1] - mass[last])
    )
    return np.asarray(within + below + above)


__all__ = ["best_limits", "merged"]
