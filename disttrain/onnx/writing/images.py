"""Images in other sizes: products with the matrices of interpolation as ``Resize``, and elements
taken by numbers as a ``Pad`` that reflects, repeats or goes around."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...export import Name
from ...nn.functional import filters
from .types import Ref, is_number, static
from .writer import Writer

_MODES = {"linear": "linear", "cubic": "bicubic"}
_LONGEST = 1 << 12  # of a dimension whose padding is looked for


def resized(found: Any, node: Any) -> Any:
    """``Resize`` of what resizes each spatial dimension by a matrix; None for other products."""
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


# --- padding -----------------------------------------------------------------------------------
_WAYS: tuple[Any, ...] = ("reflect", "edge", "wrap")  # of ``Pad``, which are NumPy's words


def padded(found: Any, node: Any) -> Any:
    """``Pad`` of what is taken by the numbers of padding; None for other places."""
    w, steps, a = found.w, dict[int, tuple[int, int]](), Name("")
    current: Any = node
    way = None
    while current is not None and current.primitive == "take":
        source, index = current.args
        how = _way(found, source, index, current.params["dim"], way)
        if how is None or current.params["dim"] in steps:
            break
        way, steps[current.params["dim"]] = how
        a = source
        current = found.maker(source)
    if not steps or (way == "wrap" and w.opset < 19):
        return None
    x = found.value(a)
    pads = [steps.get(d, (0, 0)) for d in range(x.rank)]
    flat = [lo for lo, _ in pads] + [hi for _, hi in pads]
    return w.node("Pad", x, w.ints(flat), mode=way)


def _way(found: Any, source: Any, index: Any, dim: int, wanted: Any) -> Any:
    """(how, (elements before, behind)) where an index is that of padding."""
    at = found.w.known(found.value(_checked(found, index)))
    n = found.graph.values[source].shape[dim]
    if at is None or at.ndim != 1 or not is_number(n) or not int(n) < len(at) <= _LONGEST:
        return None
    more = len(at) - int(n)
    for way in _WAYS if wanted is None else (wanted,):
        most = int(n) - 1 if way == "reflect" else more
        for low in range(max(0, more - most), min(more, most) + 1):
            if np.array_equal(np.pad(np.arange(int(n)), (low, more - low), way), at):
                return way, (low, more - low)
    return None


def _checked(found: Any, index: Any) -> Any:
    """An index past its check."""
    node = found.maker(index)
    return node.args[0] if node is not None and node.primitive == "check_index" else index
