"""Layouts of factors of matrices and of Fourier transforms: matrices, and the dimensions that are
transformed, are whole; what lies before and beside them is for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.annotations import Shaped
from .layout import Layout, names, together


def _matrices(ins: tuple[int, ...], outs: tuple[int, ...], linear: tuple = ()) -> Callable:
    """A rule of arguments and results whose last so many dimensions are whole; the dimensions
    before are those of one batch."""

    def rule(*args: Any, **params: object) -> Layout:
        lead = tuple(range(len(args[0].shape) - ins[0]))
        given = tuple(
            None if a is None else (*lead[: len(a.shape) - n], *(None,) * min(n, len(a.shape)))
            for a, n in zip(args, ins, strict=True)
        )
        return Layout(given, tuple((*lead, *(None,) * n) for n in outs), linear=linear)

    return rule


def _qr(a: Shaped, mode: str) -> Layout:
    lead = tuple(range(len(a.shape) - 2))
    whole = (*lead, None, None)
    return Layout((whole,), ((None,) if mode == "r" else whole, whole))


def _transform(a: Shaped, dims: tuple, **how: object) -> Layout:
    own = names(a, *dims)
    return Layout((own,), (own,), linear=together(0))


RULES = {
    "qr": _qr,
    "geqrf": _matrices((2,), (2, 1)),
    "cholesky": _matrices((2,), (2, 0)),
    "eigh": _matrices((2,), (1, 2)),
    "eig": _matrices((2,), (1, 2)),
    "lu_factor": _matrices((2,), (2, 1, 0)),
    "row_order": _matrices((1,), (1,)),
    "ldl_factor": _matrices((2,), (2, 1, 0)),
    "ldl_solve": _matrices((2, 1, 2), (2,), together(2)),
    "solve_triangular": _matrices((2, 2), (2,), together(1)),
    "pinv": _matrices((2, 0, 0), (2,)),
    "matrix_exp": _matrices((2,), (2,)),
    "fft": _transform,
    "rfft": _transform,
    "irfft": _transform,
}
