"""Types and places of tensors, changed."""

from __future__ import annotations

import pytest

import disttrain as dt


def test_what_has_the_type_and_place_already_is_itself():
    x = dt.ones(3)
    assert x.to(dt.float32) is x and x.to("cpu") is x and x.cpu() is x
    assert x.to(dt.float32, copy=True) is not x


@pytest.mark.parametrize("words", [(dt.float64,), ("cpu", dt.float64), (dt.ones(1).double(),)])
def test_words_in_any_order(words):
    assert dt.ones(2).to(*words).dtype is dt.float64
    assert dt.ones(2).to(dtype=dt.float64, device="cpu").dtype is dt.float64


def test_gradients_come_back_in_the_first_type():
    x = dt.ones(2).requires_grad_()
    (x.to(dt.float64) * 2).sum().backward()
    assert x.grad.dtype is dt.float32 and x.grad.tolist() == [2.0, 2.0]


def test_the_host_has_no_number():
    x = dt.ones(1)
    assert x.get_device() == -1 and x.device == dt.device("cpu")
    assert x.to("meta").is_meta


def test_unknown_places_are_refused():
    with pytest.raises((RuntimeError, ValueError)):
        dt.ones(1).to("nowhere")
    with pytest.raises((RuntimeError, ValueError, AssertionError)):
        dt.ones(1).cuda()
