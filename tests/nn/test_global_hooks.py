"""Hooks of all modules: around every call and at every registration, until they are removed."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn import global_hooks as everywhere


def test_around_every_call_and_before_a_modules_own():
    seen = []
    net = nn.Sequential(nn.Identity())
    net.register_forward_pre_hook(lambda m, args: seen.append("own"))
    handle = everywhere.register_module_forward_pre_hook(
        lambda m, args: seen.append(type(m).__name__)
    )
    try:
        net(dt.ones(1))
    finally:
        handle.remove()
    assert seen == ["Sequential", "own", "Identity"]
    net(dt.ones(1))
    assert seen[3:] == ["own"]


@pytest.mark.parametrize(
    ("register", "hook", "want"),
    [
        (everywhere.register_module_forward_pre_hook, lambda m, args: (args[0] * 2,), 2.0),
        (everywhere.register_module_forward_hook, lambda m, args, out: out + 5, 6.0),
        (everywhere.register_module_forward_hook, lambda m, args, out: None, 1.0),
    ],
)
def test_what_a_hook_returns_replaces(register, hook, want):
    handle = register(hook)
    try:
        assert nn.Identity()(dt.ones(1)).item() == want
    finally:
        handle.remove()
    assert nn.Identity()(dt.ones(1)).item() == 1.0


def test_gradients_are_seen():
    seen = []
    handle = everywhere.register_module_full_backward_hook(
        lambda m, grad_in, grad_out: seen.append((grad_in[0].item(), grad_out[0].item()))
    )
    try:
        layer = nn.Linear(1, 1, bias=False)
        layer(dt.ones(1, 1, requires_grad=True)).sum().backward()
    finally:
        handle.remove()
    assert seen == [(pytest.approx(layer.weight.item()), 1.0)]


def test_registrations_are_seen_and_may_be_replaced():
    other = nn.Parameter(dt.zeros(1))
    names = []
    handles = [
        everywhere.register_module_parameter_registration_hook(lambda m, name, p: other),
        everywhere.register_module_buffer_registration_hook(lambda m, name, b: names.append(name)),
        everywhere.register_module_module_registration_hook(lambda m, name, s: names.append(name)),
    ]
    try:
        module = nn.Module()
        module.weight = nn.Parameter(dt.ones(1))
        module.register_buffer("mean", dt.ones(1))
        module.part = nn.Module()
    finally:
        for handle in handles:
            handle.remove()
    assert module.weight is other and names == ["mean", "part"]
