"""Images in other sizes, and with borders."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.nn import functional as F
from support.onnx_runs import operators, written


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [None, True])
@pytest.mark.parametrize("size", [(6, 8), (5, 3), (4, 9)])
def test_images_in_another_size(mode, corners, size):
    if mode == "nearest" and corners:
        return
    x = dt.randn(2, 3, 3, 4)
    made = written(lambda x: F.interpolate(x, size, mode=mode, align_corners=corners), (x,))
    if mode != "nearest":
        assert operators(made) == ["Resize"]


def test_doubled_images_of_any_size():
    made = written(lambda x: F.interpolate(x, scale_factor=2), (dt.randn(1, 2, 5, 5),),
                   (dt.randn(3, 2, 3, 7),), dynamic=({0: "n", 2: "h", 3: "w"},))  # fmt: skip
    assert operators(made) == ["Resize"]


def test_filters_and_areas_are_products():
    x = dt.randn(1, 2, 6, 7)
    written(lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), (x,))
    written(lambda x: F.interpolate(x, (4, 3), mode="area"), (x,))
    written(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (x,))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_borders_are_one_operator(mode):
    for widths in ((1, 2, 0, 1), (2, 0, 1, 1), (1, 1, 0, 0)):
        made = written(lambda x, w=widths: F.pad(x, w, mode), (dt.randn(1, 2, 4, 5),))
        assert operators(made) == ["Pad"]


def test_places_that_are_no_border():
    at = dt.tensor([1, 0, 1, 2, 0])
    made = written(lambda x: x.index_select(1, at), (dt.randn(2, 3),))
    assert operators(made) == ["Gather"]
