"""LAPACK's routines that numpy has no function for, from the library that numpy is linked to.

OpenBLAS, MKL and others have them under LAPACK's names; builds with 64-bit integers, and numpy's
own, add to names. Where they are not found (``available`` says so) the same is computed by numpy's
functions of arrays: ``solved_triangular`` and ``lu`` here have both ways, ``ldl`` only the first.

Arrays are (..., m, n) of one of the four types of LAPACK. Its matrices are stored by columns: a
matrix stored by rows is its transpose.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}


class _Library(NamedTuple):
    handle: ctypes.CDLL
    before: str
    after: str
    integer: type


@functools.cache
def _library() -> _Library | None:
    """The library with its spelling of names; None where it has none that is known."""
    try:
        numpy = importlib.import_module("numpy.linalg._umath_linalg")
        handle = ctypes.CDLL(numpy.__file__)  # finds what it needs, too
    except (ImportError, OSError):
        return None
    wide = bool(getattr(numpy, "_ilp64", False))
    integer = ctypes.c_int64 if wide else ctypes.c_int32
    for before in ("scipy_", ""):
        for after in ("_64_", "64_") if wide else ("_",):
            if hasattr(handle, f"{before}dgetrf{after}"):
                return _Library(handle, before, after, integer)
    return None


def available() -> bool:
    """Whether LAPACK's own routines are used."""
    return _library() is not None


@functools.cache
def _routine(name: str, letter: str, count: int) -> tuple[Callable[..., None], type]:
    """A routine of ``count`` arguments, all addresses, and the type of its integers."""
    found = _library()
    assert found is not None, "LAPACK is not there"
    fn = getattr(found.handle, f"{found.before}{_LETTERS[letter]}{name}{found.after}")
    fn.restype, fn.argtypes = None, (ctypes.c_void_p,) * count
    return fn, found.integer


class _Places(list):
    """Numbers and letters that a routine reads, kept for as long as their addresses are used."""

    def at(self, value: Any) -> int:
        """The address of a number of ctypes."""
        self.append(value)
        return ctypes.addressof(value)


def _of_lapack(a: np.ndarray) -> None:
    if a.dtype.char not in _LETTERS:
        raise TypeError(f"array type {a.dtype} is unsupported in linalg")


def by_columns(a: np.ndarray) -> np.ndarray:
    """A copy of every matrix in LAPACK's order: shape (..., n, m)."""
    return np.array(np.swapaxes(a, -1, -2), order="C", copy=True)


def by_rows(a: np.ndarray) -> Any:
    """The matrices of ``by_columns`` again, rows in one piece."""
    return np.ascontiguousarray(np.swapaxes(a, -1, -2))


def _each(a: np.ndarray) -> tuple[int, int]:
    """How many matrices ``a`` has, and the bytes from one to the next."""
    size = a.shape[-1] * a.shape[-2] * a.itemsize
    return (a.nbytes // size if size else 0), size


# --- triangular systems ------------------------------------------------------------------------
def solved_triangular(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """x with ``a x = b``, of triangular a (..., n, n) and b (..., n, k) of one batch. The other
    triangle is not read; zeros on the diagonal give infinities."""
    _of_lapack(a)
    if not available():
        return substituted(np, a, b, upper, unit)
    a, x = np.ascontiguousarray(a), np.array(b, dtype=a.dtype, order="C", copy=True)
    if x.size:
        trsm(a, x, upper, unit)
    return x


def trsm(a: np.ndarray, x: np.ndarray, upper: bool, unit: bool) -> None:
    """In place, of arrays in one piece: BLAS sees x^T a^T = b^T."""
    fn, integer = _routine("trsm", a.dtype.char, 11)
    n, k = x.shape[-2:]
    one, kept = np.ones((), a.dtype), _Places()
    letters = (b"R", b"L" if upper else b"U", b"N", b"U" if unit else b"N")
    side, triangle, turned, diagonal = (kept.at(ctypes.c_char(c)) for c in letters)
    rows, columns = kept.at(integer(n)), kept.at(integer(k))
    (count, step), wide = _each(x), _each(a)[1]
    scale, first, second = one.ctypes.data, a.ctypes.data, x.ctypes.data
    for i in range(count):
        fn(side, triangle, turned, diagonal, columns, rows, scale, first + i * wide, rows,
           second + i * step, columns)  # fmt: skip


_FEW = 32  # rows that are substituted one by one


def substituted(xp: Any, a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """The same with the functions of an array module, for arrays of any kind."""
    n = a.shape[-1]
    if n <= _FEW:
        return _by_rows_one_by_one(xp, a, b, upper, unit)
    half = n // 2
    top, low = slice(0, half), slice(half, n)
    first, second = (low, top) if upper else (top, low)
    one = substituted(xp, a[..., first, first], b[..., first, :], upper, unit)
    rest = b[..., second, :] - xp.matmul(a[..., second, first], one)
    two = substituted(xp, a[..., second, second], rest, upper, unit)
    return xp.concatenate([two, one] if upper else [one, two], -2)


def _by_rows_one_by_one(xp: Any, a: Any, b: Any, upper: bool, unit: bool) -> Any:
    x, n = b.astype(a.dtype), a.shape[-1]
    for i in range(n - 1, -1, -1) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        row = x[..., i : i + 1, :] - xp.matmul(a[..., i : i + 1, known], x[..., known, :])
        x[..., i : i + 1, :] = row if unit else row / a[..., i : i + 1, i : i + 1]
    return x


# --- LU ----------------------------------------------------------------------------------------
def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(both factors in one matrix, the rows exchanged with the first, second ... counted from 1,
    the first zero on the diagonal counted from 1, or 0): a (..., m, n) by partial pivoting."""
    _of_lapack(a)
    if not available():
        return eliminated(np, a)
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    out = by_columns(a)
    fn, integer = _routine("getrf", a.dtype.char, 6)
    pivots: Any = np.zeros((*lead, min(m, n)), integer)
    info: Any = np.zeros(lead, integer)
    kept, (count, step) = _Places(), _each(out)
    rows, columns = kept.at(integer(m)), kept.at(integer(n))
    matrix, swaps, told = out.ctypes.data, pivots.ctypes.data, info.ctypes.data
    for i in range(count):
        fn(rows, columns, matrix + i * step, rows, swaps + i * pivots.itemsize * min(m, n),
           told + i * info.itemsize)  # fmt: skip
    return by_rows(out), pivots.astype(np.int32), info.astype(np.int32)


def eliminated(xp: Any, a: Any) -> tuple:
    """The same with the functions of an array module, column by column, for arrays of any kind."""
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    out = a.copy().reshape(-1, m, n) if a.size else a.copy()
    pivots = xp.zeros((len(out) if a.size else 1, k), np.int32)
    info = xp.zeros(lead, np.int32)
    if not a.size:
        return out, xp.zeros((*lead, k), np.int32), info
    flat, rows = xp.zeros(len(out), np.int32), xp.arange(m)
    for j in range(k):
        best = xp.argmax(_size_for_pivots(xp, out[:, j:, j]), -1) + j
        pivots[:, j] = best + 1
        chosen = xp.where(rows == j, best[:, None], xp.where(rows == best[:, None], j, rows))
        out = xp.take_along_axis(out, chosen[:, :, None], 1)
        corner = out[:, j : j + 1, j]
        flat = xp.where((flat == 0) & (corner[:, 0] == 0), j + 1, flat)
        out[:, j + 1 :, j] /= xp.where(corner == 0, 1, corner)
        out[:, j + 1 :, j + 1 :] -= out[:, j + 1 :, j : j + 1] * out[:, j : j + 1, j + 1 :]
    return out.reshape(a.shape), pivots.reshape(*lead, k), flat.reshape(lead).astype(np.int32)


def _size_for_pivots(xp: Any, a: Any) -> Any:
    """LAPACK's measure of complex numbers: the sum of both parts' sizes."""
    return xp.abs(a.real) + xp.abs(a.imag) if a.dtype.kind == "c" else xp.abs(a)


# --- symmetric indefinite matrices ---------------------------------------------------------------
def _ldl_name(kind: np.dtype, hermitian: bool) -> str:
    return "he" if hermitian and kind.kind == "c" else "sy"


def _needed(what: str) -> None:
    if not available():
        raise NotImplementedError(
            f"{what} needs LAPACK's routines, which this build of numpy does not show; use the "
            "numpy of its wheels"
        )


def ldl(a: np.ndarray, hermitian: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bunch and Kaufman's factors of the lower triangle: (L and D in one matrix, pivots, the first
    zero block of D counted from 1, or 0)."""
    _of_lapack(a)
    _needed("ldl_factor")
    n = a.shape[-1]
    out = by_columns(a)
    fn, integer = _routine(_ldl_name(a.dtype, hermitian) + "trf", a.dtype.char, 8)
    pivots: Any = np.zeros(a.shape[:-1], integer)
    info: Any = np.zeros(a.shape[:-2], integer)
    kept, (count, step) = _Places(), _each(out)
    work = np.empty(64 * max(n, 1), a.dtype)
    lower, size = kept.at(ctypes.c_char(b"L")), kept.at(integer(n))
    room, length = work.ctypes.data, kept.at(integer(work.size))
    matrix, swaps, told = out.ctypes.data, pivots.ctypes.data, info.ctypes.data
    for i in range(count):
        fn(lower, size, matrix + i * step, size, swaps + i * n * pivots.itemsize, room, length,
           told + i * info.itemsize)  # fmt: skip
    return by_rows(out), pivots.astype(np.int32), info.astype(np.int32)


def _check_swaps(swaps: np.ndarray, n: int) -> None:
    """That rows of pivots are such as a factorization gives: row numbers from 1 on, negative by
    pairs. LAPACK reads memory by them."""
    places = np.abs(swaps)
    good = bool(((places >= 1) & (places <= n)).all()) if swaps.size else True
    for row in swaps[(swaps < 0).any(axis=-1)] if good and swaps.size else ():
        ends = np.flatnonzero(np.diff(np.concatenate(([0], row < 0, [0]))))
        good = good and not ((ends[1::2] - ends[::2]) % 2).any()
    if not good:
        raise ValueError("ldl_solve: the pivots are those of no factorization; give what "
                         "ldl_factor made")  # fmt: skip


def ldl_solved(ld: np.ndarray, pivots: np.ndarray, b: np.ndarray, hermitian: bool) -> np.ndarray:
    """x with ``a x = b``, by the factors of ``ldl``."""
    _of_lapack(ld)
    if b.dtype != ld.dtype:
        raise TypeError(
            f"factors of {ld.dtype} and a right side of {b.dtype} are of different types"
        )
    _needed("ldl_solve")
    n, k = b.shape[-2:]
    factors, x = by_columns(ld), by_columns(b)
    fn, integer = _routine(_ldl_name(ld.dtype, hermitian) + "trs", ld.dtype.char, 9)
    swaps: Any = np.ascontiguousarray(pivots.astype(integer))
    _check_swaps(swaps.reshape(-1, n) if n else swaps, n)
    kept, (count, step), wide = _Places(), _each(x), _each(factors)[1]
    lower, size, columns = (kept.at(ctypes.c_char(b"L")), kept.at(integer(n)), kept.at(integer(k)))
    told = kept.at(integer(0))
    first, second, places = factors.ctypes.data, x.ctypes.data, swaps.ctypes.data
    for i in range(count):
        fn(lower, size, columns, first + i * wide, size, places + i * n * swaps.itemsize,
           second + i * step, size, told)  # fmt: skip
    return by_rows(x)
