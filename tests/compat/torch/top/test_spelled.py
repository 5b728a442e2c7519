"""Helpers of PyTorch's own code that programs import."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compat.torch.top import spelled

F, U = spelled.functional(), spelled.utils()


def test_one_function_of_two():
    both = F["boolean_dispatch"](
        "pair", 1, False, lambda x, pair=False: (x, x), lambda x, pair=False: x, "m", "both"
    )
    assert both(1) == 1 and both(1, True) == both(1, pair=True) == (1, 1)
    assert both.__name__ == "both" and F["BroadcastingList2"][int] is None
    with pytest.raises(AssertionError, match="size must be"):
        F["assert_int_or_pair"]([1, 2, 3], "size", "{} must be one or two")


def test_what_takes_a_call_over():
    class Other:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, types, args

    class Plain:
        pass

    x = dt.ones(1)
    assert not F["has_torch_function_variadic"](x, Plain(), 1)
    assert F["has_torch_function_unary"](Other())
    found = F["handle_torch_function"](dt.nn.functional.relu, (x, Other()), 5)
    assert found == ("relu", (Other,), (5,))
    with pytest.raises(TypeError, match="no implementation"):
        F["handle_torch_function"](dt.nn.functional.relu, (x,), 5)


def test_weights_in_another_order_and_an_old_name():
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Conv3d(2, 3, 2), nn.Linear(2, 2))
    before = [p.detach().clone() for p in net.parameters()]
    U["convert_conv2d_weight_memory_format"](net, dt.channels_last)
    assert net[0].weight.is_contiguous(memory_format=dt.channels_last)
    assert net[1].weight.is_contiguous()
    for p, was in zip(net.parameters(), before, strict=True):
        assert dt.equal(p.detach(), was)
    net[2](dt.ones(1, 2)).sum().backward()
    with pytest.warns(UserWarning, match="deprecated"):
        U["clip_grad_norm"](net[2].parameters(), 0.1)
    with spelled.graph()["region_activation_memory_budget"](0.5):
        assert spelled.autograd()["enforce_grad_layout_policy"](False) is not None
