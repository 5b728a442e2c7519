"""Modules under ``replicate`` equal one process, and stay what they were."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed._composable import _get_registry, contract, replicate
from disttrain.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from disttrain.errors import ConfigError, DeviceError, ModuleNameError
from disttrain_launcher import launch
from support.rounding import Sums
from support.simulated import on_ranks

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=12, depth=2 * 3 * 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.register_buffer("scale", dt.ones(1).double())

    def forward(self, x, extra=0.0):
        return self.fc3(self.fc2(self.fc1(x).tanh()).tanh()) * self.scale + extra


def net() -> Net:
    dt.manual_seed(0)
    return Net().double()


def whole(m: nn.Module) -> nn.Module:
    return replicate(m, bucket_cap_mb=0.0001)


def parts(m: nn.Module) -> nn.Module:
    for child in (m.fc1, m.fc2, m.fc3):
        replicate(child)
    return m


def train(m: nn.Module, rank: int, size: int, steps: int = 4) -> list[np.ndarray]:
    o = dt.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        o.zero_grad()
        x = core.wrap(np.random.default_rng(step).standard_normal((12, 4)))[rank::size]
        (m(x, extra=0.5) ** 2).mean().backward()
        o.step()
    return [p.detach().numpy().copy() for p in m.parameters()]


def on_rank(make) -> list[np.ndarray]:
    dist.init_process_group()
    m = net()
    if dist.get_rank():
        for p in m.parameters():
            p.data.fill_(7.0)  # rank 0's values win
    out = train(make(m), dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
    return out


def assert_like_one(results: list) -> None:
    for ours in results:
        for a, b in zip(ours, train(net(), 0, 1), strict=True):
            SUMS.equal(a, b)


@pytest.mark.simulated
@pytest.mark.parametrize("make", [whole, parts])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_equals_one_process(size: int, make) -> None:
    assert_like_one(dist.simulate(on_rank, size, args=(make,)).results)


def test_on_real_processes() -> None:
    assert_like_one(launch(lambda: on_rank(whole), 2))


def test_names_type_and_state_dict_stay() -> None:
    m = net()
    keys, text = list(m.state_dict()), [n for n, _ in m.named_modules()]
    assert replicate(m) is m and isinstance(m, Net) and type(m).__name__ == "DDPNet"
    assert list(m.state_dict()) == keys and [n for n, _ in m.named_modules()] == text
    assert type(type(m)()) is Net
    other = net()
    other.load_state_dict(m.state_dict())
    assert "replicate" in _get_registry(m) and _get_registry(other) is None


@pytest.mark.simulated
def test_gradients_accumulate_where_they_are_not_synchronised() -> None:
    def body() -> tuple:
        m, rank = replicate(net()), dist.get_rank()
        x = dt.full((2, 4), 1.0 + rank).double()
        m.set_requires_gradient_sync(False)
        m(x).sum().backward()
        local = m.fc1.weight.grad.numpy().copy()
        m.set_requires_gradient_sync(True)
        m(x).sum().backward()
        return local, m.fc1.weight.grad.numpy().copy()

    (local0, both0), (local1, both1) = on_ranks(body, 2)
    assert (local0 != local1).any()
    np.testing.assert_allclose(both0, local0 + local1, atol=1e-12)
    np.testing.assert_array_equal(both0, both1)


@pytest.mark.simulated
@pytest.mark.parametrize("early", [True, False])
def test_hooks_before_and_after_the_first_forward(early: bool) -> None:
    def body() -> float:
        m = replicate(net())
        if not early:
            with dt.no_grad():
                m(dt.ones(1, 4).double())
        m.register_comm_hook(None, noop_hook)
        m(dt.full((1, 4), 1.0 + dist.get_rank()).double()).sum().backward()
        assert replicate.state(m)._ddp_weakref() is replicate.state(m)._ddp
        return m.fc1.weight.grad.sum().item()

    first, second = on_ranks(body, 2)
    assert first != second


@pytest.mark.simulated
def test_ignored_and_sharded_parts_are_left_alone() -> None:
    def body() -> tuple:
        m = net()
        m.fc3.weight.data.fill_(float(dist.get_rank()))
        m.fc2 = dist.fsdp.fully_shard(m.fc2)
        replicate(m, ignored_modules=[m.fc3])
        m(dt.ones(2, 4).double() * (1.0 + dist.get_rank())).sum().backward()
        names = [meta.name for meta in replicate.state(m)._ddp.reducer.metas]
        return m.fc3.weight.detach()[0, 0].item(), names, m.fc2.weight.grad is not None

    for rank, (value, names, sharded) in enumerate(on_ranks(body, 2)):
        assert value == rank and names == ["fc1.weight", "fc1.bias"] and sharded


@pytest.mark.simulated
def test_a_forward_that_a_program_has_put_there_is_kept() -> None:
    def body() -> tuple:
        m = net()
        m.forward = lambda x: m.fc1(x) * 2.0
        replicate(m, find_unused_parameters=True)
        m(dt.ones(1, 4).double()).sum().backward()
        return m.fc1.bias.grad.tolist(), m.fc2.bias.grad

    assert on_ranks(body, 2)[0] == ([2.0] * 6, None)


@pytest.mark.simulated
@pytest.mark.parametrize("call, error, text", [
    (lambda m: replicate(m, device_id=[0]), DeviceError, "int or torch.device"),
    (lambda m: replicate(replicate(m)), AssertionError, "only be applied to a module once"),
    (lambda m: copy.deepcopy(replicate(m)), ConfigError, "does not support deepcopy"),
    (lambda m: replicate(dist.fsdp.fully_shard(m)), ConfigError, "managed by `fully_shard`"),
])  # fmt: skip
def test_what_cannot_be_is_said(call, error: type, text: str) -> None:
    def body() -> str:
        try:
            call(net())
        except error as told:
            return str(told)
        return ""

    assert text in on_ranks(body, 1)[0]


# --- the contract --------------------------------------------------------------------------------


def test_functions_under_the_contract_have_states() -> None:
    @contract()
    def feature(module, value):
        feature.state(module).value = value
        return module

    m = net()
    feature(m.fc1, 3)
    feature(m.fc2, 4)
    assert feature.state(m.fc1).value == 3 and feature.state(m.fc2).value == 4
    assert feature.state(m) is None and list(_get_registry(m.fc1)) == ["feature"]


def test_of_several_modules_the_outer_ones_share_a_state() -> None:
    @contract()
    def feature(modules):
        return modules

    m = net()
    feature([m.fc1, m, m.fc2])
    assert feature.state(m) is not None and feature.state(m.fc1) is None


def test_names_may_not_change() -> None:
    @contract()
    def wrap(module):
        return nn.Sequential(module)

    @contract()
    def add(module):
        module.register_buffer("more", dt.ones(1))

    for fn in (wrap, add):
        with pytest.raises(ModuleNameError, match="cannot modify FQNs"):
            fn(net())


@pytest.mark.simulated
def test_weight_is_weighted_where_no_parameter_has_that_name():
    def body():
        model = replicate(nn.Sequential(nn.Linear(1, 1, bias=False)))
        x = dt.full((1, 1), float(dist.get_rank()))
        with model.weight(1 + dist.get_rank()):
            model(x).sum().backward()
        assert isinstance(replicate(nn.Linear(1, 1)).weight, dt.Tensor)
        return model[0].weight.grad.item()

    assert on_ranks(body, 2) == [pytest.approx(2 / 3)] * 2
