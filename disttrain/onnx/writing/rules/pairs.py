"""Complex numbers inside of a model: pairs of real numbers along one more, last dimension.

A ``Ref`` of a complex type is such a tensor of pairs; rules here are asked for nodes that take or
give one. Inputs and results of models are never complex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....backends.null import NullArray
from ..types import INT64, Ref, Unmapped, is_number, static
from ..writer import RULES, Writer
from .shapes import steps_of

PAIRS: dict[str, Callable[..., Any]] = {}  # by the names of primitives


def _pairs(*names: str) -> Callable[[Callable], Callable]:
    def register(fn: Callable) -> Callable:
        PAIRS.update(dict.fromkeys(names, fn))
        return fn

    return register


def is_complex(a: Any) -> bool:
    """Whether a value is complex."""
    return isinstance(a, Ref) and a.dtype.kind == "c"


def parts_type(dtype: Any) -> np.dtype:
    """The type of the real part."""
    kind = np.dtype(dtype)
    return np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind


def opened(a: Ref) -> Ref:
    """The pairs of a complex value as what they are."""
    shape = None if a.shape is None else (*a.shape, 2)
    return Ref(a.name, parts_type(a.dtype), shape)


def _closed(a: Ref, shape: Any = None) -> Ref:
    kind = np.dtype(f"c{a.dtype.itemsize * 2}")
    return Ref(a.name, kind, shape)


def _part(w: Writer, a: Ref, i: int) -> Ref:
    """The real or the imaginary part."""
    made = w.node("Gather", opened(a), w.constant(i, INT64), axis=-1)
    return Ref(made.name, made.dtype, a.shape)


def _joined(w: Writer, real: Ref, imaginary: Ref) -> Ref:
    at = w.constant([-1], INT64)
    both = [w.node("Unsqueeze", p, at) for p in (real, imaginary)]
    return w.node("Concat", *both, axis=-1)


def _widened(w: Writer, a: Any, kind: np.dtype) -> Ref:
    """A real or complex value, or a number, as pairs."""
    if not isinstance(a, Ref):
        number = complex(a)
        return w.constant(np.array([number.real, number.imag], kind))
    if is_complex(a):
        return opened(a)
    column = w.node("Unsqueeze", w.cast(a, kind), w.constant([-1], INT64))
    pads = [0] * (a.rank + 1) + [0] * a.rank + [1]
    return w.node("Pad", column, w.constant(pads, INT64))


def _kind(w: Writer) -> np.dtype:
    return parts_type(w.outs[0].dtype)


# --- arithmetic ---------------------------------------------------------------------------------
def _added(kind: str) -> Callable:
    def run(w: Writer, a: Any, b: Any) -> Ref:
        return w.node(kind, *(_widened(w, x, _kind(w)) for x in (a, b)))

    return run


PAIRS["add"], PAIRS["sub"] = _added("Add"), _added("Sub")


def _scaled(w: Writer, kind: str, a: Ref, b: Any) -> Ref:
    """Pairs by real numbers."""
    number = w.operand(b.real if isinstance(b, complex) else b, _kind(w))
    if isinstance(b, Ref):
        number = w.node("Unsqueeze", w.cast(b, _kind(w)), w.constant([-1], INT64))
    return w.node(kind, opened(a), number)


def _is_real(x: Any) -> bool:
    return not is_complex(x) and not (isinstance(x, complex) and x.imag)


@_pairs("mul")
def _mul(w: Writer, a: Any, b: Any) -> Ref:
    if _is_real(b):
        return _scaled(w, "Mul", a, b)
    if _is_real(a):
        return _scaled(w, "Mul", b, a)
    x, y = (_closed(_widened(w, v, _kind(w))) for v in (a, b))
    (xr, xi), (yr, yi) = ([_part(w, v, i) for i in (0, 1)] for v in (x, y))
    real = w.node("Sub", w.node("Mul", xr, yr), w.node("Mul", xi, yi))
    return _joined(w, real, w.node("Add", w.node("Mul", xr, yi), w.node("Mul", xi, yr)))


@_pairs("div")
def _div(w: Writer, a: Any, b: Any) -> Ref:
    if _is_real(b):
        return _scaled(w, "Div", a, b)
    below = _closed(_widened(w, b, _kind(w)))
    size = w.reduce("ReduceSumSquare", opened(below), (-1,), True)
    turned = _closed(w.node("Div", _conj(w, below), size))
    return _mul(w, a, turned)


@_pairs("neg")
def _neg(w: Writer, a: Ref) -> Ref:
    return w.node("Neg", opened(a))


@_pairs("conj")
def _conj(w: Writer, a: Ref) -> Ref:
    pairs = opened(a)
    return w.node("Mul", pairs, w.constant([1, -1], pairs.dtype))


@_pairs("square")
def _square(w: Writer, a: Ref) -> Ref:
    return _mul(w, a, a)


@_pairs("exp")
def _exp(w: Writer, a: Ref) -> Ref:
    size, angle = w.node("Exp", _part(w, a, 0)), _part(w, a, 1)
    return _joined(w, *(w.node("Mul", size, w.node(k, angle)) for k in ("Cos", "Sin")))


@_pairs("abs")
def _abs(w: Writer, a: Ref) -> Ref:
    return w.reduce("ReduceL2", opened(a), (-1,), False)


@_pairs("real")
def _real(w: Writer, a: Ref) -> Ref:
    return _part(w, a, 0)


@_pairs("imag")
def _imag(w: Writer, a: Ref) -> Ref:
    return _part(w, a, 1)


@_pairs("cast")
def _cast(w: Writer, a: Ref, dtype: Any) -> Ref:
    if np.dtype(dtype).kind == "c":
        return w.cast(_widened(w, a, parts_type(dtype)), parts_type(dtype))
    return w.cast(_part(w, a, 0), dtype)


@_pairs("view_as_real", "view_as_complex", "clone")
def _as_it_is(w: Writer, a: Ref) -> Ref:
    return opened(a) if is_complex(a) else a


# --- what moves elements: the last dimension stays ------------------------------------------------
def _moved(name: str, change: Callable[[dict, Ref], dict] = lambda p, a: p) -> None:
    def run(w: Writer, *args: Ref, **params: Any) -> Any:
        outs = w.outs
        w.outs = [
            None if o is None else NullArray((*o.shape, 2), parts_type(o.dtype)) for o in outs
        ]
        given = [opened(a) if is_complex(a) else a for a in args]
        found = RULES[name](w, *given, **change(params, args[0]))
        w.outs = outs
        return found

    PAIRS[name] = run


for _name in ("reshape", "expand", "flip", "roll", "cat", "split", "unbind", "sum", "mean", "take"):
    _moved(_name)
_moved("permute", lambda p, a: {"dims": (*p["dims"], len(p["dims"]))})
_moved("getitem", lambda p, a: {"index": (*steps_of(p["index"], a.rank), slice(None))})
_moved("pad_constant", lambda p, a: {**p, "widths": (*p["widths"], (0, 0))})


# --- Fourier transforms ------------------------------------------------------------------------
def _transformed(w: Writer, a: Ref, dim: int, inverse: bool = False, half: bool = False) -> Ref:
    how = {"inverse": int(inverse), "onesided": int(half)}
    if w.opset >= 20:
        return w.node("DFT", a, None, w.constant(dim, INT64), **how)
    return w.node("DFT", a, axis=dim, **how)


def _normed(w: Writer, a: Ref, sizes: list, inverse: bool, norm: str) -> Ref:
    """What ``norm`` asks for: the operator divides by the number of points when it goes back."""
    if norm == "backward":
        return a
    if not static(sizes):
        raise Unmapped("a Fourier transform with norm, of sizes that depend on the input")
    count = float(np.prod([int(n) for n in sizes]))
    share = count if norm == "forward" else count**0.5
    return w.node("Mul", a, w.constant(share if inverse else 1 / share, a.dtype))


@_pairs("fft")
def _fft(w: Writer, a: Ref, dims: tuple, inverse: bool, norm: str) -> Ref:
    found = opened(a)
    for dim in dims:
        found = _transformed(w, found, dim, inverse)
    return _normed(w, found, [(a.shape or ())[d] for d in dims], inverse, norm)


@_pairs("rfft")
def _rfft(w: Writer, a: Ref, dims: tuple, norm: str) -> Ref:
    column = w.node("Unsqueeze", a, w.constant([-1], INT64))
    found = _transformed(w, column, dims[-1], half=True)
    for dim in dims[:-1]:
        found = _transformed(w, found, dim)
    return _normed(w, found, [(a.shape or ())[d] for d in dims], False, norm)


@_pairs("irfft")
def _irfft(w: Writer, a: Ref, dims: tuple, size: Any, norm: str) -> Ref:
    """The other half of the spectrum is that of the first one, conjugate and backwards."""
    shape, last = a.shape or (), dims[-1]
    if not is_number(size) or not is_number(shape[last]):
        raise Unmapped("irfft of a size that depends on the input")
    found, size, have = opened(a), int(size), int(shape[last])
    for dim in dims[:-1]:
        found = _transformed(w, found, dim, True)
    count = size // 2 + 1
    if have < count:
        pads = [0] * (2 * a.rank + 2)
        pads[a.rank + 1 + last] = count - have
        found = w.node("Pad", found, w.constant(pads, INT64))
    at = [*range(count), *range(size - count, 0, -1)]
    signs = np.ones((size, 2))
    signs[count:, 1] = -1
    signs[0, 1] = 0
    if size % 2 == 0:
        signs[size // 2, 1] = 0
    signs = signs.reshape(size, *(1,) * (a.rank - last - 1), 2)
    whole = w.node("Gather", found, w.constant(at, INT64), axis=last)
    whole = w.node("Mul", whole, w.constant(signs.astype(found.dtype)))
    back = _transformed(w, whole, last, True)
    sizes = [*(shape[d] for d in dims[:-1]), size]
    return _part(w, _closed(_normed(w, back, sizes, True, norm)), 0)
