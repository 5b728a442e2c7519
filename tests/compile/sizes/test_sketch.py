"""Sketches: shapes with symbols, strides of views, and what is asked of how memory lies."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.compile.sized import Unlike
from disttrain.compile.sizes.sketch import Sketch, is_view, knows_strides
from disttrain.symbolic import Scope


class Run:
    """Answers as one array does, and notes what was asked."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.asked = array, list[str]()

    def fact(self, sketch: Sketch, name: str, *others: Sketch) -> bool:
        self.asked.append(name)
        return self.array.base is None if name == "own" else getattr(self.array.flags, name)

    def result(self, prim: object, arrays: object, params: dict) -> Sketch:
        raise NotImplementedError


def sketch(array: np.ndarray, in_order: bool):
    scope = Scope()
    n = scope.symbol(array.shape[0])
    run = Run(array)
    return scope, run, Sketch(run, (n, *array.shape[1:]), array.dtype, array, in_order)


def test_memory_in_order_has_strides_of_its_sizes_and_is_not_asked_for():
    scope, run, s = sketch(np.zeros((5, 3), np.float32), True)
    assert s.flags.c_contiguous
    assert s.strides == (12, 4)
    assert s.size // s.shape[0] == 3
    assert (run.asked, scope.relations) == ([], {})


def test_how_other_memory_lies_is_asked():
    _, run, s = sketch(np.zeros((3, 5), np.float32).T, False)
    assert not s.flags.c_contiguous
    assert s.flags.forc
    with pytest.raises(Unlike):
        _ = s.strides
    assert "f_contiguous" in run.asked


@pytest.mark.parametrize(
    ("name", "params", "view"),
    [("permute", {"dims": (1, 0)}, lambda a: a.T),
     ("getitem", {"index": (slice(1, 3), None, Ellipsis)}, lambda a: a[1:3, None]),
     ("getitem", {"index": (slice(None, None, 2), 1)}, lambda a: a[::2, 1]),
     ("expand", {"shape": (2, 5, 3)}, lambda a: np.broadcast_to(a, (2, 5, 3)))],
)  # fmt: skip
def test_views_have_the_strides_that_numpy_gives_them(name, params, view):
    array = np.zeros((5, 3), np.float32)
    scope, run, s = sketch(array, True)
    seen = view(array)
    of = Sketch(run, seen.shape, array.dtype, seen)
    of.source = s, name, params
    assert tuple(of.strides) == seen.strides
    assert scope.holds(5)


def test_it_has_no_numbers():
    _, _, s = sketch(np.zeros((5, 3), np.float32), True)
    with pytest.raises(Unlike):
        s.copy()


@pytest.mark.parametrize(
    "other", [(4, 6, 2, 4), (24, 8), (4, 48), (2, 2, 6, 8), (4, 6, 8), (192,), (4, 3, 2, 8)]
)
@pytest.mark.parametrize("index", [..., (slice(None), slice(0, 3)), (..., slice(2, 6)), (0,)])
def test_views_are_those_that_numpy_can_give(other, index):
    a = np.zeros((4, 6, 8), np.float32)[index]
    if a.size != np.prod(other):
        other = (*a.shape[:-1], 2, a.shape[-1] // 2)
    assert is_view(a.shape, a.strides, other) == np.shares_memory(a.reshape(other), a)


def test_strides_follow_from_sizes_where_it_is_known_what_is_seen():
    *_, known = sketch(np.zeros((4, 6)), True)
    *_, unknown = sketch(np.zeros((4, 6)), False)
    assert knows_strides(np.zeros(3)) and knows_strides(known) and not knows_strides(unknown)
    *_, seen = sketch(np.zeros((6, 4)), False)
    for source in (known, unknown):
        seen.source = source, "permute", {"dims": (1, 0)}
        assert knows_strides(seen) == (source is known)
    seen.source = known, "reshape", {}
    assert not knows_strides(seen)
