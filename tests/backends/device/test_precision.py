"""Precision of products and choice of convolutions: defaults, what is set, what is refused."""

from __future__ import annotations

import pytest

from disttrain import context
from disttrain.backends.device import precision
from disttrain.errors import ConfigError


@pytest.fixture(autouse=True)
def _as_before():
    slots = context.current().slots
    before = dict(slots)
    yield
    slots.clear()
    slots.update(before)


def test_defaults():
    assert precision.matmul_precision() == "highest"
    assert precision.reduced_reduction("float16") is True
    found = {name: precision.convolution_setting(name) for name in precision.CONVOLUTION}
    assert found == precision.CONVOLUTION


@pytest.mark.parametrize("level", precision.LEVELS)
def test_levels_are_kept(level):
    precision.set_matmul_precision(level)
    assert precision.matmul_precision() == level


def test_another_level_is_refused():
    with pytest.raises(ConfigError, match="'low' given; needed one of highest, high, medium"):
        precision.set_matmul_precision("low")
    assert precision.matmul_precision() == "highest"


def test_kinds_are_set_apart():
    precision.set_reduced_reduction("float16", False)
    assert precision.reduced_reduction("float16") is False
    assert precision.reduced_reduction("bfloat16") is True


def test_convolutions_take_their_kind():
    precision.set_convolution("benchmark", True)
    precision.set_convolution("benchmark_limit", 0)
    assert precision.convolution_setting("benchmark") is True
    assert precision.convolution_setting("benchmark_limit") == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("enabled", 1), ("benchmark_limit", True), ("benchmark_limit", -1), ("enabled", "yes")],
)
def test_values_of_other_kinds_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"backends.cudnn.{name}"):
        precision.set_convolution(name, value)
    assert precision.convolution_setting(name) == precision.CONVOLUTION[name]
