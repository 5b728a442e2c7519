"""Activation wrappers: names as without them, values and gradients, too."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import wrap as wrapping
from disttrain.distributed.fsdp.activation import (
    ActivationWrapper,
    CheckpointImpl,
    CheckpointWrapper,
    OffloadWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from disttrain.errors import ConfigError

REENTRANT = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
WRAPPERS = [REENTRANT, checkpoint_wrapper, offload_wrapper]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        manual_seed(1)
        self.lin = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, a: core.Tensor, *, b: core.Tensor) -> tuple:
        self.calls += 1
        return self.lin(a).tanh(), self.lin(b)


def grads(model: nn.Module, x: np.ndarray) -> list[np.ndarray]:
    t = core.wrap(x).requires_grad_()
    one, two = model(t, b=t)
    (one * two).sum().backward()
    return [t.grad.numpy(), *[p.grad.numpy() for p in model.parameters()]]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_gradients_are_those_of_the_module(wrap: object) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
    model = wrap(Two())
    for ours, theirs in zip(grads(model, x), grads(Two(), x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert model.calls == (1 if isinstance(model, OffloadWrapper) else 2)


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_names_and_state_dicts_show_no_wrapper(wrap: object) -> None:
    plain = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model = wrap(nn.Sequential(wrap(nn.Linear(2, 2)), nn.Linear(2, 2)))
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in model.named_parameters()] == list(plain.state_dict())
    model.load_state_dict(plain.state_dict())
    plain.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(
        plain[0].weight.detach().numpy(), model[0].weight.detach().numpy()
    )
    outer = nn.ModuleDict({"a": model})
    assert "a.0.weight" in outer.state_dict()
    outer.load_state_dict(outer.state_dict())


def test_attributes_and_items_are_the_modules() -> None:
    inner = nn.Sequential(nn.Linear(1, 1))
    inner.note = "kept"
    model = CheckpointWrapper(inner)
    assert model.note == "kept"
    assert model[0] is inner[0]
    with pytest.raises(AttributeError, match="nothing"):
        _ = model.nothing


@pytest.mark.parametrize("chosen", [
    {"check_fn": lambda m: isinstance(m, nn.Linear)},
    {"auto_wrap_policy": wrapping.ModuleWrapPolicy({nn.Linear})},
])  # fmt: skip
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_apply_wraps_what_is_chosen(wrap: object, chosen: dict) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    apply_activation_checkpointing(model, wrap, **chosen)
    assert [n for n, m in model.named_modules() if isinstance(m, ActivationWrapper)] == ["0", "1.0"]
    model(core.wrap(np.ones((2, 3), "f4")).requires_grad_()).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_policy_is_a_function_or_an_object() -> None:
    with pytest.raises(ConfigError, match="a function or a policy"):
        apply_activation_checkpointing(nn.Sequential(), auto_wrap_policy=3)


def test_ones_own_function_and_blocks() -> None:
    entered = []

    class Block:
        def __enter__(self) -> None:
            entered.append(1)

        def __exit__(self, *error: object) -> None:
            pass

    model = checkpoint_wrapper(nn.Linear(1, 1), context_fn=lambda: (Block(), Block()))
    model(core.wrap(np.ones((2, 1), "f4"))).sum().backward()
    assert len(entered) == 2
    model = checkpoint_wrapper(nn.Linear(1, 1), checkpoint_fn=lambda f, *a, k: (f(*a), k), k=5)
    assert model(core.wrap(np.ones((2, 1), "f4")))[1] == 5
