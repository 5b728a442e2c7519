"""Products of matrices, and determinants."""

from __future__ import annotations

from ..types import Ref
from ..writer import Writer, rule


@rule("matmul", "local_product")
def _matmul(w: Writer, a: Ref, b: Ref) -> Ref:
    return w.node("MatMul", a, b)


@rule("linear")
def _linear(w: Writer, x: Ref, weight: Ref, b: Ref | None = None) -> Ref:
    """``Gemm`` of matrices, which takes the weight as it lies; else the weight is turned."""
    if x.rank == 2 and x.dtype.kind == "f":
        out = w.node("Gemm", x, weight, b, transB=1)
    else:
        out = w.node("MatMul", x, w.transpose(weight, (1, 0)))
        out = out if b is None else w.node("Add", out, b)
    w.products[out.name] = x, weight, b
    return out


@rule("det")
def _det(w: Writer, a: Ref) -> Ref:
    return w.node("Det", a)


@rule("slogdet")
def _slogdet(w: Writer, a: Ref) -> tuple:
    found = w.node("Det", a)
    return w.node("Sign", found), lambda: w.node("Log", w.node("Abs", found))
