"""In which order tensors lie."""

from __future__ import annotations

import pytest

import disttrain as dt

X = dt.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)


def test_strides():
    assert X.stride() == (60, 20, 5, 1) and X.stride(1) == 20
    assert X.is_contiguous() and not X.transpose(0, 1).is_contiguous()


def test_channels_last():
    last = X.contiguous(memory_format=dt.channels_last)
    assert last.stride() == (60, 1, 15, 3) and last.tolist() == X.tolist()
    assert last.is_contiguous(memory_format=dt.channels_last) and not last.is_contiguous()
    assert (last * 2).stride() == last.stride()  # results lie as what they are made of
    assert last.contiguous().stride() == X.stride()


def test_clones_keep_the_order_unless_told():
    turned = X.permute(1, 3, 0, 2)
    assert turned.clone().stride() == turned.stride()
    assert turned.clone(memory_format=dt.contiguous_format).is_contiguous()
    assert dt.empty_like(turned).stride() == turned.stride()


def test_what_is_contiguous_is_itself():
    assert X.contiguous() is X and X.T.contiguous() is not X


def test_channels_last_needs_four_dimensions():
    with pytest.raises((RuntimeError, ValueError)):
        dt.ones(2, 3).contiguous(memory_format=dt.channels_last)
