"""Where two runs of a program differ, and how much they may.

Compared: whether a line raises, dtypes, shapes, requires_grad, is_leaf, values, gradients.
Not compared: the texts of errors, strides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from peers.program import INVALID, Lines, Outcome, Value

# The one place for tolerances: relative to the largest value of the array (1 at least). What a
# program computes is as good as the narrowest floating type in it.
TOLERANCE = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 3e-5,
    "complex64": 3e-5,
    "float16": 1e-2,
    "bfloat16": 6e-2,
}

# What the peer says where it has no code or no signature for something; that we have one is no
# difference. After it the two have done different things, so nothing more is compared.
UNWRITTEN = (
    "not implemented for",
    "not implemented yet",
    "derivative for aten::",
    "the derivative for '",
    "does not support automatic differentiation",
    "not supported for",
    "is not yet implemented",
    "saved tensor that has been detached in-place",
    "Low precision dtypes not supported",
    "Autograd not support dtype",
    "must be Tensor, not",  # a number where its signature has a tensor
    "invalid combination of arguments",
    "output of a function that returns multiple views",  # of unbind, split, chunk
    "not supported with sparse gradients",
    "does not support sparse grad",
    "All tensors must have the same dtype",  # of bilinear under autocast
    "'LBFGS' object has no attribute '_params'",  # a copy of it
    "Attempted step but _scale is None",
    "is not supported. Use add(dense, sparse)",
    "from the 'SparseCPU' backend",
    "expand is unsupported for Sparse tensors",
    "nested_tensorlist",  # an assertion of its own, of clip_grad_value_ without gradients
)

# The same, of gradients: rules that do not know of operands of several types.
UNWRITTEN_GRADIENTS = (
    "expected sparse coordinate tensor layout but got Strided",
    "arguments from the 'CPU' backend",
    "can't be cast to the desired output type",
    "Expected isFloatingType(grad.scalar_type())",
    "on a bool tensor is not supported",
    "with a bool tensor is not supported",
    "output with shape [] doesn't match the broadcast shape",
)


@dataclass(frozen=True)
class Difference:
    """What differs (``kind``), in which name or line, and both sides in words."""

    kind: str
    where: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.where}: ours {self.ours}; PyTorch's {self.theirs}"


def compare(lines: Lines, ours: Outcome, theirs: Outcome) -> Difference | None:
    """The first difference: of lines that raise, then of what names stand for."""
    for line, mine, other in zip(lines, ours.errors, theirs.errors, strict=True):
        if (mine is None) != (other is None):
            if mine is None and unwritten(line, str(other)):
                return None
            kind = "no error" if mine is None else "error"
            return Difference(kind, line, _said(mine), _said(other))
    tolerance = coarsest(theirs.names)
    for part in (_tensors, _grads):
        for name, value in theirs.names.items():
            found = _differ(name, ours.names.get(name, "missing"), value, tolerance, part)
            if found:
                return found
    return None


def unwritten(line: str, said: str) -> bool:
    backward = ".backward(" in line or "autograd.grad(" in line
    return any(text in said for text in UNWRITTEN + (UNWRITTEN_GRADIENTS if backward else ()))


def _said(error: BaseException | None) -> str:
    if error is None:
        return "raises nothing"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def coarsest(x: Any) -> float:
    """The tolerance of the narrowest floating type in what a program has made."""
    if isinstance(x, Value):
        return TOLERANCE.get(x.dtype, 0.0)
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, list) else ()
    return max(map(coarsest, parts), default=0.0)


def _differ(where: str, a: Any, b: Any, tolerance: float, part: Any) -> Difference | None:
    if b == INVALID:
        return None
    if isinstance(a, Value) and isinstance(b, Value):
        return part(where, a, b, tolerance)
    if isinstance(b, list) and isinstance(a, list) and len(a) == len(b):
        pairs = [(f"{where}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b))]
    elif isinstance(b, dict) and isinstance(a, dict) and a.keys() == b.keys():
        pairs = [(f"{where}[{k!r}]", a[k], b[k]) for k in b]
    elif isinstance(b, (int, float, complex)) and type(a) is type(b):
        same = close(np.asarray(a), np.asarray(b), max(tolerance, 1e-9))
        return None if same else Difference("value", where, repr(a), repr(b))
    else:
        same = type(a) is type(b) and a == b
        return None if same else Difference("value", where, _short(a), _short(b))
    found = (_differ(w, x, y, tolerance, part) for w, x, y in pairs)
    return next((d for d in found if d), None)


def _tensors(where: str, a: Value, b: Value, tolerance: float) -> Difference | None:
    for kind in ("dtype", "shape", "requires_grad", "is_leaf"):
        mine, other = getattr(a, kind), getattr(b, kind)
        if mine != other:
            return Difference(kind, where, str(mine), str(other))
    if close(a.array, b.array, tolerance if b.array.dtype.kind in "fc" else 0.0):
        return None
    return Difference("value", where, _short(a), _short(b))


def _grads(where: str, a: Value, b: Value, tolerance: float) -> Difference | None:
    if a.grad is None or b.grad is None:
        same = a.grad is b.grad
        return None if same else Difference("grad", where, _short(a.grad), _short(b.grad))
    found = _tensors(where, a.grad, b.grad, tolerance)
    return found and Difference(f"grad {found.kind}", where, found.ours, found.theirs)


def close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Equal up to ``tolerance`` times the largest finite value; inf and nan in the same places."""
    if a.shape != b.shape:
        return False
    if tolerance == 0.0:
        return bool(np.array_equal(a, b))
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    with np.errstate(all="ignore"):
        return bool(np.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True))


def _short(x: Any) -> str:
    if isinstance(x, Value):
        digits = 5 if x.array.size > 6 else 12
        return f"{np.array2string(x.array, precision=digits, threshold=12)} ({x.dtype})".replace(
            "\n", ""
        )
    return str(x)[:160]
