"""Pooling modules: the functions with their settings."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn

F = nn.functional
LINE, PLANE = (
    dt.linspace(-3, 9, 48).sin().reshape(2, 3, 8),
    dt.linspace(0, 9, 216).cos().reshape(2, 3, 6, 6),
)
SPACE = dt.linspace(0, 9, 384).cos().reshape(2, 3, 4, 4, 4)
CASES = {
    "max 1d": (nn.MaxPool1d(3, 2, 1), lambda: F.max_pool1d(LINE, 3, 2, 1), LINE),
    "max 2d": (
        nn.MaxPool2d(2, ceil_mode=True), lambda: F.max_pool2d(PLANE, 2, ceil_mode=True), PLANE,
    ),
    "max 3d": (
        nn.MaxPool3d((2, 1, 3), 1, (1, 0, 1)),
        lambda: F.max_pool3d(SPACE, (2, 1, 3), 1, (1, 0, 1)), SPACE,
    ),
    "mean 3d": (
        nn.AvgPool3d(2, ceil_mode=True, divisor_override=3),
        lambda: F.avg_pool3d(SPACE, 2, ceil_mode=True, divisor_override=3), SPACE,
    ),
    "mean 1d": (nn.AvgPool1d(2), lambda: F.avg_pool1d(LINE, 2), LINE),
    "mean 2d": (
        nn.AvgPool2d(3, 1, 1, count_include_pad=False),
        lambda: F.avg_pool2d(PLANE, 3, 1, 1, count_include_pad=False), PLANE,
    ),
    "adaptive mean 1d": (nn.AdaptiveAvgPool1d(3), lambda: F.adaptive_avg_pool1d(LINE, 3), LINE),
    "adaptive mean 2d": (
        nn.AdaptiveAvgPool2d((2, 3)), lambda: F.adaptive_avg_pool2d(PLANE, (2, 3)), PLANE,
    ),
    "adaptive mean 3d": (nn.AdaptiveAvgPool3d(2), lambda: F.adaptive_avg_pool3d(SPACE, 2), SPACE),
    "adaptive max 1d": (nn.AdaptiveMaxPool1d(5), lambda: F.adaptive_max_pool1d(LINE, 5), LINE),
    "adaptive max 2d": (nn.AdaptiveMaxPool2d(4), lambda: F.adaptive_max_pool2d(PLANE, 4), PLANE),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_module_is_its_function(name):
    module, wanted, x = CASES[name]
    assert module(x).tolist() == wanted().tolist()
    assert not list(module.parameters()) and repr(module).startswith(type(module).__name__)


def test_places_of_the_largest():
    best, index = nn.MaxPool2d(2, return_indices=True)(PLANE)
    taken = PLANE.flatten(2).gather(2, index.flatten(2))
    assert taken.tolist() == best.flatten(2).tolist()


def test_an_input_without_a_batch_is_one_example():
    assert nn.MaxPool2d(2)(PLANE[0]).tolist() == nn.MaxPool2d(2)(PLANE)[0].tolist()
