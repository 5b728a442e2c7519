"""Deep copies: what shared memory shares it again, parameters stand for themselves."""

from __future__ import annotations

import copy

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import AutogradError


def test_views_of_one_memory_stay_views_of_one():
    x = dt.arange(6.0)
    first, (second, third) = copy.deepcopy([x, (x[2:4], x.reshape(2, 3).T)])
    first[2] = 9.0
    assert second[0] == 9 and third[2, 0] == 9 and x[2] == 2
    assert third.stride() == (1, 3)


def test_a_parameter_in_two_places_is_one_copy_without_gradient():
    p = nn.Parameter(dt.ones(2))
    p.sum().backward()
    made = copy.deepcopy({"a": p, "b": p, "data": p.detach()})
    assert made["a"] is made["b"] and made["a"].grad is None and made["a"].requires_grad
    assert made["data"].data_ptr() != p.data_ptr()


def test_leaves_keep_their_role_and_their_attributes():
    x = dt.ones(2).requires_grad_()
    x.mark = [1]
    y = copy.deepcopy(x)
    assert y.requires_grad and y.is_leaf and y.mark == [1] and y.mark is not x.mark
    assert copy.copy(x).data_ptr() == x.data_ptr()


def test_results_of_a_graph_cannot_be_copied():
    with pytest.raises(AutogradError, match="only leaves can be copied"):
        copy.deepcopy(dt.ones(2).requires_grad_() * 2)
