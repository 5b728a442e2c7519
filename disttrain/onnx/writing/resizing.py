"""Images in other sizes: products with the matrices of interpolation as ``Resize``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...nn.functional import filters
from .types import Ref, static
from .writer import Writer

_MODES = {"linear": "linear", "cubic": "bicubic"}


def resized(found: Any, node: Any) -> Any:
    """``Resize`` of what resizes each spatial dimension by a matrix; None for other nodes."""
    if node.primitive != "local_product":
        return None
    steps, a = _steps(found, node)
    w, x = found.w, found.value(a)
    if not steps or not static(x.shape):
        return None
    for mode in ("linear", "cubic"):
        for corners in (False, True):
            if all(_is(w.known(found.value(m)), mode, corners) for _, m in steps):
                return _written(w, x, steps, found, mode, corners)
    return None


def _steps(found: Any, node: Any) -> tuple[list[tuple[int, Any]], Any]:
    """(dimension, matrix) of products that follow each other, and what the first is of."""
    steps: list[tuple[int, Any]] = []
    rank = len(found.graph.values[node.outputs[0]].shape)
    place = list(range(rank))  # where the dimensions of the value lie in the result
    current: Any = node
    while current is not None and current.primitive == "local_product":
        a, matrix = current.args
        steps.append((place[-1], matrix))
        before = found.maker(a)
        while before is not None and before.primitive == "permute":
            dims = before.params["dims"]
            inverse = [0] * rank
            for i, d in enumerate(dims):
                inverse[d] = place[i]
            place, a = inverse, before.args[0]
            before = found.maker(a)
        current = before
    if place != list(range(rank)) or len({d for d, _ in steps}) < len(steps):
        return [], a
    return steps, a


def _is(matrix: Any, mode: str, corners: bool) -> bool:
    """Whether it is the matrix of this interpolation, of a size and no other scale."""
    if matrix is None or matrix.ndim != 2:
        return False
    size, out = matrix.shape
    if size == out:
        return bool(np.array_equal(matrix, np.eye(size)))
    made = filters.sampled(_MODES[mode], size, out, None, corners).T
    return bool(np.allclose(made.astype(matrix.dtype), matrix, rtol=0, atol=1e-6))


def _written(w: Writer, x: Ref, steps: list, found: Any, mode: str, corners: bool) -> Ref:
    sizes = [int(n) for n in x.shape or ()]
    for dim, matrix in steps:
        sizes[dim] = int(w.known(found.value(matrix)).shape[1])  # type: ignore[union-attr]
    how = "align_corners" if corners else "half_pixel"
    more: dict[str, Any] = {} if mode == "linear" else {"cubic_coeff_a": -0.75}
    return w.node("Resize", x, None, None, w.ints(sizes), mode=mode,
                  coordinate_transformation_mode=how, **more)  # fmt: skip
