"""``torch.utils.checkpoint``: policies name operations as PyTorch does; small functions."""

from __future__ import annotations

import functools

import pytest

import disttrain as dt
from disttrain.compat.torch import checkpoints
from disttrain.core.backward.selective import operation

MODULES = checkpoints.modules()
CP, ATEN = MODULES["torch.utils.checkpoint"], MODULES["torch.ops.aten"]


def test_a_policy_compares_operations_by_their_names_of_pytorch():
    asked = []

    def policy(ctx, op, *args, **params):
        asked.append(op in {ATEN.mm.default, ATEN.addmm.default})
        return CP.CheckpointPolicy.MUST_SAVE if asked[-1] else CP.CheckpointPolicy.MUST_RECOMPUTE

    x = dt.rand(2, 3, requires_grad=True)
    net = dt.nn.Sequential(dt.nn.Linear(3, 4), dt.nn.Tanh(), dt.nn.Linear(4, 2, bias=False))
    contexts = functools.partial(CP.create_selective_checkpoint_contexts, policy)
    CP.checkpoint(net, x, use_reentrant=False, context_fn=contexts).sum().backward()
    assert asked[:3] == [True, False, True]
    assert ATEN.convolution.default == operation("conv")
    assert ATEN.sin.Tensor != ATEN.cos.default and ATEN.numel in CP.SAC_IGNORED_OPS


def test_small_functions():
    x = dt.ones(1, requires_grad=True)
    y, n = CP.detach_variable((x * 2, 3))
    assert y.is_leaf and y.requires_grad and n == 3
    with pytest.raises(RuntimeError, match="tuple"):
        CP.detach_variable([x])
    with pytest.warns(UserWarning, match="None of the inputs"):
        CP.check_backward_validity([x.detach()])
    CP.DefaultDeviceType.set_device_type("cuda")
    assert CP.get_device_states(x) == ([], [])
    CP.set_device_states([], [])
    first, second = CP.noop_context_fn()
    with first, second, CP.GraphExecGroup(), CP.set_checkpoint_debug_enabled(True):
        pass
