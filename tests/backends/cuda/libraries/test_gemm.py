"""Plans of matrix products."""

from __future__ import annotations

import pytest

from disttrain.backends.cuda.libraries.gemm import Copies, Gemm, batch_stride, gemm, lies
from disttrain.errors import ShapeError


def test_plans():
    assert lies((3, 4), (4, 1)) == (False, 4) and lies((3, 4), (1, 3)) == (True, 3)
    assert lies((3, 4), (8, 2)) is None and lies((1, 4), (99, 1)) == (False, 4)
    assert lies((3, 4), (0, 1)) is None
    assert batch_stride((2, 3), (12, 4)) == 4 and batch_stride((2, 3), (0, 0)) == 0
    assert batch_stride((2, 3), (4, 8)) is None
    one = gemm((8, 16, 4), (256, 16, 4), (4, 5), (4, 16), 4)
    assert isinstance(one, Gemm) and (one.m, one.batch, one.b.flipped) == (128, 1, True)
    assert gemm((2, 3, 4), (4, 8, 64), (2, 4, 5), (80, 20, 4), 4) == Copies(True, False, (2,))
    with pytest.raises(ShapeError, match="do not broadcast"):
        gemm((2, 3, 4), (48, 16, 4), (3, 4, 5), (80, 20, 4), 4)
