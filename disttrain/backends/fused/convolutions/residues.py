"""Places of a convolution's input that are alike modulo the strides. The gradient at those is a
convolution in steps of one, with some of the weights (W. Shi et al., "Is the deconvolution layer
the same as a convolutional layer?", 2016)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from . import winograd

_LONG = 9  # weights from which it gains for longer steps (measured): residues of four do not


class Residue(NamedTuple):
    """Places of one axis of x that are alike modulo the stride."""

    first: int
    places: int
    taps: list[int]  # of the kernel, that reach them
    begins: list[int]  # the place of g that the first one meets with each


def residues(size: int, kernel: int, stride: int, padding: int, dilation: int) -> list[Residue]:
    """Those of an axis of x of that size, in order."""
    found = []
    for a in range(min(stride, size)):
        taps = [t for t in range(kernel) if (a + padding - t * dilation) % stride == 0]
        begins = [(a + padding - t * dilation) // stride for t in taps]
        found.append(Residue(a, -(-(size - a) // stride), taps, begins))
    return found


def room_of(residues: list[Residue], n: int) -> tuple[int, int]:
    """Places before and behind the ``n`` of g that all of them need."""
    begins = [b for each in residues for b in each.begins]
    ends = [b + each.places - 1 for each in residues for b in each.begins]
    return max(0, -min(begins, default=0)), max(0, max(ends, default=0) - (n - 1))


def run_of(numbers: list[int]) -> slice:
    """Numbers with equal steps between them as a slice."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    return slice(numbers[0], numbers[-1] + 1, step)


def flipped(w: ndarray, groups: int) -> ndarray:
    """The weights of the convolution that is the adjoint at stride 1."""
    channels, each = w.shape[:2]
    w = w.reshape(groups, channels // groups, each, *w.shape[2:])
    w = np.flip(w.swapaxes(1, 2), tuple(range(3, w.ndim)))
    return w.reshape(groups * each, channels // groups, *w.shape[3:])


def input_grad(
    g: ndarray, w: ndarray, dx: ndarray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> list[int] | None:  # fmt: skip
    """``dx`` (N, C, ...), in order, becomes the adjoint of a convolution in x at ``g`` (N, O, ...),
    by minimal filtering of every residue. Gives what ``winograd.convolve`` gives: samples that are
    to be computed in another way, or None."""
    if max(stride) > 1 and max(w.shape[2:]) < _LONG:
        return None
    every = list(_convolutions(w, dx.shape[2:], stride, padding, dilation, groups))
    if not all(each.gains(g, groups) for each in every) or not np.isfinite(w).all():
        return None
    left: set[int] = set()
    for each in every:
        whole = each.counts == dx.shape[2:]
        y = dx if whole else np.empty((*dx.shape[:2], *each.counts), dx.dtype)
        some = winograd.convolve(
            g, each.weights, None, y, stride=(1,) * len(stride), padding=each.padding,
            dilation=each.dilation, groups=groups,
        )  # fmt: skip
        if some is None:
            return None
        left.update(some)
        if not whole:
            dx[each.where] = y
    return sorted(left)


class _Convolution(NamedTuple):
    """What the gradient is at some places of x: a convolution of g in steps of one."""

    where: Any  # their index
    counts: tuple[int, ...]
    weights: ndarray
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def gains(self, g: ndarray, groups: int) -> bool:
        return self.weights.size > 0 and winograd.gains(
            g.shape, self.weights.shape, self.counts, self.padding, self.dilation, groups
        )


def _convolutions(
    w: ndarray, size: tuple, stride: tuple, padding: tuple, dilation: tuple, groups: int
) -> Iterator[_Convolution]:
    axes = [residues(*each) for each in
            zip(size, w.shape[2:], stride, padding, dilation, strict=True)]  # fmt: skip
    for chosen in itertools.product(*axes):
        index: tuple[Any, ...] = (..., *(run_of(r.taps) if r.taps else slice(0) for r in chosen))
        yield _Convolution(
            (..., *(slice(r.first, None, len(axis)) for r, axis in zip(chosen, axes, strict=True))),
            tuple(r.places for r in chosen),
            flipped(w[index], groups) if all(r.taps for r in chosen) else w[:0],
            tuple(-r.begins[-1] if r.taps else 0 for r in chosen),
            tuple(r.begins[0] - r.begins[1] if r.taps[1:] else 1 for r in chosen),
        )


__all__ = ["Residue", "flipped", "input_grad", "residues", "room_of", "run_of"]
