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
    told = [_told(found.maker(m)) for _, m in steps]
    if steps and all(t is not None for t in told):
        return _by_words(w, x, [d for d, _ in steps], told)
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


def _told(node: Any) -> tuple | None:
    """(mode, size, new size, scale or None, whether corners are aligned) of what makes the matrix
    of an interpolation of sizes that may change."""
    if node is None or node.primitive != "weights":
        return None
    given = node.params["given"]
    if node.params["of"] == "resizing":
        given = given[1:]
    else:
        given = (node.params["of"], *given)
    return given[1:] if given[0] == "sampled" and len(given) == 6 else None


def _by_words(w: Writer, x: Ref, dims: list[int], told: list) -> Any:
    """The same of sizes that may change, where all dimensions are resized in one way."""
    if len({(mode, f is None, corners) for mode, _, _, f, corners in told}) > 1:
        return None
    mode, corners, scaled = told[0][0], bool(told[0][4]), told[0][3] is not None
    mode = "cubic" if mode == "bicubic" else "linear"
    if scaled:
        scales = np.ones(x.rank, np.float32)
        for dim, (_, _, _, f, _) in zip(dims, told, strict=True):
            scales[dim] = f
        return _resize(w, x, (w.constant(scales), None), mode, corners)
    sizes = list(x.shape or ())
    for dim, (_, _, out, _, _) in zip(dims, told, strict=True):
        sizes[dim] = out
    return _resize(w, x, (None, w.ints(sizes)), mode, corners)


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
    return _resize(w, x, (None, w.ints(sizes)), mode, corners)


def _resize(w: Writer, x: Ref, goal: tuple, mode: str, corners: bool) -> Ref:
    how = "align_corners" if corners else "half_pixel"
    more: dict[str, Any] = {} if mode == "linear" else {"cubic_coeff_a": -0.75}
    made: Ref = w.node("Resize", x, None, *goal, mode=mode, coordinate_transformation_mode=how,
                       **more)  # fmt: skip
    return made


# --- padding -----------------------------------------------------------------------------------
_WAY_OF = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_WAYS: tuple[Any, ...] = tuple(_WAY_OF.values())  # of ``Pad``, which are NumPy's words


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
    checked = _checked(found, index)
    told = _told_padding(found.maker(checked))
    if told is not None:
        return told if wanted in (None, told[0]) else None
    at = found.w.known(found.value(checked))
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


def _told_padding(node: Any) -> tuple | None:
    """The same of what makes the places of padding a dimension whose size may change."""
    if node is None or node.primitive != "places" or node.params["of"] != "padding":
        return None
    mode, _, low, high = node.params["given"]
    return (_WAY_OF[mode], (low, high)) if is_number(low) and is_number(high) else None


def _checked(found: Any, index: Any) -> Any:
    """An index past its check."""
    node = found.maker(index)
    return node.args[0] if node is not None and node.primitive == "check_index" else index
