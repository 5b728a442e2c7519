"""Sketches: shapes with symbols, strides of views, and what is asked of how memory lies."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.compile.sized import Unlike
from disttrain.compile.sizes.sketch import Sketch
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
