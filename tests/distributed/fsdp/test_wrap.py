"""Which modules auto-wrap policies choose, and what stands in their places afterwards."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.distributed.fsdp import MixedPrecision
from disttrain.distributed.fsdp import wrap as wrapping
from disttrain.errors import ConfigError


class Wrapped(nn.Module):
    """Stands for a unit: knows what it was given."""

    def __init__(self, module: nn.Module, **kwargs: object) -> None:
        super().__init__()
        self.module = module
        self.given = kwargs

    def forward(self, *args: object) -> object:
        return self.module(*args)


def nested() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(5, 5), nn.Linear(5, 5), nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    )


def apply(model: nn.Module, policy: object, ignored: tuple = (), **kwargs: object) -> list[str]:
    """Names of the wrapped modules below ``model`` (without the wrappers' own steps)."""
    params = [p for m in ignored for p in m.parameters()]
    wrapping.auto_wrap(model, policy, set(ignored), params, kwargs, Wrapped)
    return names(model)


def names(model: nn.Module) -> list[str]:
    return [
        name.replace(".module", "") for name, m in model.named_modules() if isinstance(m, Wrapped)
    ]


def by_size(n: int, **kwargs: object) -> object:
    return functools.partial(wrapping.size_based_auto_wrap_policy, min_num_params=n, **kwargs)


def test_always_wraps_everything_but_what_is_ignored() -> None:
    assert apply(nested(), wrapping.always_wrap_policy) == ["0", "1", "2", "2.0", "2.1"]
    model = nested()
    assert apply(model, wrapping.always_wrap_policy, (model[1], model[2][0])) == ["0", "2", "2.1"]
    model = nested()
    assert apply(model, by_size(40), (model[1], model[2][0])) == []


@pytest.mark.parametrize("policy", [wrapping.always_wrap_policy,
                                    wrapping.ModuleWrapPolicy({nn.Linear})])  # fmt: skip
def test_a_module_in_two_places_is_wrapped_once(policy: object) -> None:
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    apply(model, policy)
    assert isinstance(model[0], Wrapped)
    assert model[0] is model[2]


@pytest.mark.parametrize("nest", [False, True])
def test_refuses_what_is_wrapped_already(nest: bool) -> None:
    inner = Wrapped(nn.Linear(1, 1))
    model = nn.Sequential(nn.Sequential(nn.Linear(1, 1), inner) if nest else inner)
    name = "0.1" if nest else "0"
    with pytest.raises(ConfigError, match=f"but found {name} in"):
        apply(model, by_size(0))
    with pytest.raises(AssertionError, match="already wrapped"):
        wrapping._recursive_wrap(model, by_size(0), Wrapped, set(), set())


def test_enable_wrap_gives_its_arguments_to_wrap() -> None:
    assert isinstance(wrapping.wrap(nn.Linear(1, 1)), nn.Linear)
    with wrapping.enable_wrap(wrapper_cls=Wrapped, a=1, b=2):
        one = wrapping.wrap(nn.Linear(1, 1), b=3)
        with (
            pytest.raises(ConfigError, match="inside another one"),
            wrapping.enable_wrap(wrapper_cls=Wrapped),
        ):
            pass
    assert one.given == {"a": 1, "b": 3}
    assert isinstance(wrapping.wrap(nn.Linear(1, 1)), nn.Linear)


class WithNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.bn = nn.BatchNorm1d(4)

    def forward(self, x: core.Tensor) -> core.Tensor:
        return self.bn(self.lin(x))


@pytest.mark.parametrize("policy", [by_size(10**9), wrapping.ModuleWrapPolicy({WithNorm})])
def test_batch_norms_keep_their_types_under_mixed_precision(policy: object) -> None:
    model = nn.Sequential(WithNorm())
    low = MixedPrecision(param_dtype=core.dtypes.bfloat16)
    with pytest.warns(UserWarning, match="mixed precision and an auto_wrap_policy"):
        apply(model, policy, mixed_precision=low)
    inner = model[0].module if isinstance(model[0], Wrapped) else model[0]
    assert isinstance(inner.bn, Wrapped)
    assert inner.bn.given["mixed_precision"] is None
    seen = []
    inner.bn.module.register_forward_pre_hook(lambda m, args: seen.append(args[0].dtype))
    out = inner.bn(core.wrap(np.ones((2, 4), "f4")).bfloat16())
    assert seen == [core.dtypes.float32]
    assert out.dtype is core.dtypes.bfloat16


def test_units_that_mix_frozen_and_trained_parameters() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2)))
    model[1][0].weight.requires_grad_(False)
    policy = wrapping.ModuleWrapPolicy({nn.Sequential})
    with pytest.raises(ConfigError, match="1 has both parameters with requires_grad=True and Fal"):
        wrapping.auto_wrap(model, policy, set(), (), {"use_orig_params": False}, Wrapped)
    with pytest.warns(UserWarning, match=r"requires_grad=True:\n\['1.0.bias'\]"):
        wrapping.auto_wrap(model, policy, set(), (), {"use_orig_params": True}, Wrapped)
