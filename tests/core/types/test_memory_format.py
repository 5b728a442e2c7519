"""Orders of dimensions in memory: named, told from strides, undone."""

from __future__ import annotations

import pytest

from disttrain.core.types import memory_format as formats
from disttrain.errors import ConfigError, ShapeError

LAST = (48, 1, 12, 3)  # strides of (2, 3, 4, 4), channels last


def test_formats_by_name():
    assert repr(formats.channels_last) == "disttrain.channels_last"
    assert formats.as_format("f", None, formats.preserve_format) is formats.preserve_format
    with pytest.raises(TypeError, match="memory_format='last' given"):
        formats.as_format("f", "last", formats.preserve_format)


def test_orders():
    assert formats.order_of("f", formats.contiguous_format, 3) == (0, 1, 2)
    assert formats.order_of("f", formats.channels_last, 4) == (0, 2, 3, 1)
    with pytest.raises(ShapeError, match="required rank 4 tensor"):
        formats.order_of("f", formats.channels_last, 3)
    with pytest.raises(ConfigError, match="names no order"):
        formats.order_of("f", formats.preserve_format, 4)


def test_dense_memory():
    assert formats.is_dense((2, 3, 4, 4), LAST, (0, 2, 3, 1))
    assert not formats.is_dense((2, 3, 4, 4), LAST, (0, 1, 2, 3))
    assert formats.is_dense((2, 1, 3), (3, 999, 1), (0, 1, 2))  # one element: any stride


def test_orders_told_from_strides():
    assert formats.inferred((2, 3, 4, 4), LAST) == (0, 2, 3, 1)
    assert formats.inferred((2, 3), (1, 2)) == (1, 0)
    assert formats.inferred((2, 3), (3, 0)) == (0, 1)  # what repeats stays


def test_what_is_ambiguous_is_contiguous():
    assert formats.suggested((2, 3, 4, 4), LAST) is formats.channels_last
    assert formats.suggested((2, 3, 4, 4), (48, 16, 4, 1)) is formats.contiguous_format
    assert formats.suggested((2, 1, 1, 1), (1, 1, 1, 1)) is formats.contiguous_format
    assert formats.suggested((2, 3), (3, 1)) is formats.contiguous_format


def test_an_inverse_undoes():
    order = (2, 0, 3, 1)
    assert [order[i] for i in formats.inverse(order)] == [0, 1, 2, 3]
