"""Arguments that many functions share: normal forms, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import DimError, DimKindError, ShapeError
from disttrain.ops.functions import args


def test_dimensions_count_from_both_ends():
    assert [args.one_dim(d, 3, "f") for d in (0, 2, -1, -3)] == [0, 2, 2, 0]
    assert args.one_dim(-1, 0, "f") == args.one_dim(0, 0, "f") == 0
    assert args.one_dim(np.int64(-2), 3, "f") == 1


@pytest.mark.parametrize(("dim", "ndim"), [(3, 3), (-4, 3), (1, 0)])
def test_dimensions_out_of_range(dim, ndim):
    with pytest.raises(DimError, match=f"f: dimension {dim} given"):
        args.one_dim(dim, ndim, "f")


def test_dimensions_that_are_no_numbers():
    with pytest.raises(DimKindError, match=r"f: dim=1\.5 given"):
        args.one_dim(1.5, 3, "f")


def test_several_dimensions():
    assert args.dims(None, 3, "f") == args.dims((), 3, "f") == (0, 1, 2)
    assert args.dims(-1, 3, "f") == (2,)
    assert args.dims([2, -3], 3, "f") == (2, 0)
    assert args.dims(0, 0, "f") == ()
    with pytest.raises(DimError, match="names a dimension twice"):
        args.dims((0, -3), 3, "f")


def test_shapes_that_broadcast():
    assert args.broadcast("f", (2, 1), (3,), ()) == (2, 3)
    with pytest.raises(ShapeError, match=r"f: \[\[2\], \[3\]\] do not fit"):
        args.broadcast("f", (2,), (3,))


def test_sizes_in_all_spellings():
    for given in ((2, 3), ((2, 3),), ([2, 3],), (np.array([2, 3]),), (np.int64(2), dt.tensor(3))):
        assert args.size(given, "f") == (2, 3)
    assert args.size((), "f", named=(4,)) == (4,)
    for wrong in ((2.0,), (True,), ("2",)):
        with pytest.raises(ShapeError, match="integers are needed"):
            args.size(wrong, "f")


def test_what_is_no_tensor():
    t = dt.ones(1)
    assert args.tensor(t, "f") is t
    with pytest.raises(TypeError, match="f: other must be a Tensor, not list"):
        args.tensor([1], "f", "other")
