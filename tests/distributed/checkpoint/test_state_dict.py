"""State of models and optimizers by one set of names, between all kinds of parallelism."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed.checkpoint.state_dict import (
    StateDictOptions,
    _init_optim_state,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP
from disttrain.distributed.fsdp import fully_shard
from disttrain.distributed.fsdp.activation import checkpoint_wrapper
from disttrain.distributed.fsdp.wrap import ModuleWrapPolicy
from disttrain.distributed.tensor import DTensor
from disttrain.errors import ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

FULL = StateDictOptions(full_state_dict=True)
KINDS = ["plain", "ddp", "flat", "orig", "fully_shard"]


def build(kind: str, seed: int = 3) -> nn.Module:
    manual_seed(seed)
    m: Any = nn.Sequential(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)), nn.Linear(7, 3))
    m = m.double()
    if kind == "ddp":
        return dist.DistributedDataParallel(m)
    if kind in ("flat", "orig"):
        m[1] = checkpoint_wrapper(m[1])
        policy = ModuleWrapPolicy({nn.Sequential})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return FSDP(m, auto_wrap_policy=policy, use_orig_params=kind == "orig")
    if kind == "fully_shard":
        return fully_shard(fully_shard(m[0]) and m)
    return m


def optimizer_of(m: nn.Module, lr: float = 0.1) -> Any:
    return optim.AdamW(m.parameters(), lr=lr)


def step(m: nn.Module, optimizer: Any, times: int = 2) -> None:
    x = core.wrap(np.random.default_rng(7).standard_normal((6, 5)))
    for _ in range(times):
        optimizer.zero_grad()
        (m(x) ** 2).mean().backward()
        optimizer.step()


def trained(kind: str) -> tuple[nn.Module, Any]:
    m = build(kind)
    optimizer = optimizer_of(m)
    step(m, optimizer)
    return m, optimizer


def numbers(state: Any) -> Any:
    if isinstance(state, dict):
        return {k: numbers(v) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return [numbers(v) for v in state]
    return state.detach().numpy().copy() if isinstance(state, core.Tensor) else state


def assert_same(a: Any, b: Any, where: str = "") -> None:
    if isinstance(b, dict):
        assert set(a) == set(b), where
        for k in b:
            assert_same(a[k], b[k], f"{where}.{k}")
    elif isinstance(b, list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}.{i}")
    elif isinstance(b, np.ndarray):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10, err_msg=where)
    else:
        assert a == b, where


@functools.cache
def reference(times: int = 2) -> tuple:
    m = build("plain")
    optimizer = optimizer_of(m)
    step(m, optimizer, times)
    names = [n for n, _ in m.named_parameters()]
    own = optimizer.state_dict()
    state = {names[i]: numbers(v) for i, v in own["state"].items()}
    return numbers(dict(m.state_dict())), state


@pytest.mark.parametrize("kind", KINDS)
def test_full_state_is_that_of_one_process(kind: str) -> None:
    def body() -> tuple:
        model, state = get_state_dict(*trained(kind), options=FULL)
        return numbers(dict(model)), numbers(state)

    model, state = reference()
    for got_model, got_state in on_ranks(body, 2):
        assert list(got_model) == list(model)
        assert_same(got_model, model)
        assert_same(got_state["state"], state)
        assert sorted(got_state["param_groups"][0]["params"]) == sorted(state)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("source", KINDS[1:])
@pytest.mark.parametrize("target", KINDS[1:])
def test_state_moves_between_kinds(source: str, target: str, full: bool) -> None:
    options = FULL if full else None

    def body() -> tuple:
        model, state = get_state_dict(*trained(source), options=options)
        other = build(target, seed=99)
        theirs = optimizer_of(other, lr=0.5)
        keys = set_state_dict(
            other, theirs, model_state_dict=model, optim_state_dict=state, options=options
        )
        assert not keys.missing_keys
        assert not keys.unexpected_keys
        step(other, theirs, 1)
        return [numbers(dict(s)) for s in get_state_dict(other, theirs, options=FULL)]

    model, state = reference(3)
    for got_model, got_state in on_ranks(body, 2):
        assert_same(got_model, model)
        assert_same(got_state["state"], state)
        assert got_state["param_groups"][0]["lr"] == 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_rank_0_sends_what_it_alone_has(kind: str) -> None:
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)

    def body() -> list:
        model: Any = {}
        state: Any = {}
        m, o = trained("fully_shard")
        got = get_state_dict(m, o, options=StateDictOptions(True, cpu_offload=True))
        if dist.get_rank() == 0:
            model, state = got
        else:
            assert got == ({}, {})
        other = build(kind, seed=99)
        theirs = optimizer_of(other)
        set_model_state_dict(other, model, options=options)
        set_optimizer_state_dict(other, theirs, state, options=options)
        return [numbers(dict(s)) for s in get_state_dict(other, theirs, options=FULL)]

    model, state = reference()
    for got_model, got_state in on_ranks(body, 2):
        assert_same(got_model, model)
        assert_same(got_state["state"], state)


@pytest.mark.parametrize("kind", ["flat", "orig", "fully_shard"])
def test_sharded_state_is_of_sharded_tensors(kind: str) -> None:
    def body() -> None:
        m, o = trained(kind)
        model, state = get_state_dict(m, o)
        assert isinstance(model["1.weight"], DTensor)
        assert isinstance(state["state"]["1.weight"]["exp_avg"], DTensor)
        assert tuple(model["1.weight"].shape) == (3, 7)
        assert not isinstance(model["0.1.running_mean"], DTensor)

    on_ranks(body, 3)


def test_flattened_optimizer_state_and_several_optimizers() -> None:
    options = StateDictOptions(full_state_dict=True, flatten_optimizer_state_dict=True)

    def body() -> None:
        m = build("flat")
        params = list(m.parameters())
        both = [optim.AdamW(params[:1], lr=0.1), optim.SGD(params[1:], lr=0.2, momentum=0.9)]
        for o in both:
            step(m, o, 1)
        flat = get_optimizer_state_dict(m, both, options=options)
        assert flat["param_groups.1.weight.lr"] == 0.1
        assert flat["param_groups.0.0.bias.momentum"] == 0.9
        other = build("orig", seed=8)
        ps = dict(other.named_parameters())
        ours = [p for n, p in ps.items() if n.startswith("_fsdp_wrapped_module.1.")]
        rest = [p for p in ps.values() if all(p is not q for q in ours)]
        new = [optim.SGD(rest, lr=1.0, momentum=0.1), optim.AdamW(ours, lr=1.0)]
        set_optimizer_state_dict(other, new, flat, options=options)
        assert [o.param_groups[0]["lr"] for o in new] == [0.2, 0.1]
        again = get_optimizer_state_dict(other, new, options=options)
        assert_same(numbers(again), numbers(flat))

    on_ranks(body, 2)


def test_an_optimizer_that_has_not_stepped_has_its_first_state() -> None:
    class Own(optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 1.0})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["seen"] = p.grad.detach() * 0
                    p.data.add_(p.grad, alpha=-group["lr"])

    for make in (optim.AdamW, Own):
        m = build("plain")
        before = numbers(dict(m.state_dict()))
        state = get_optimizer_state_dict(m, make(m.parameters()))
        assert set(state["state"]) == {n for n, _ in m.named_parameters()}
        assert_same(numbers(dict(m.state_dict())), before)
        assert all(p.grad is None for p in m.parameters())


def test_parts_of_a_model_and_frozen_parameters() -> None:
    m = build("plain")
    m[0][0].weight.requires_grad_(False)
    lean = get_model_state_dict(m, options=StateDictOptions(ignore_frozen_params=True))
    assert "0.0.weight" not in lean
    assert "0.0.bias" in lean
    part = get_model_state_dict(m, submodules={m[0][0]})
    assert list(part) == ["0.0.weight", "0.0.bias"]
    short = StateDictOptions(keep_submodule_prefixes=False)
    part = get_model_state_dict(m, submodules={m[0][0]}, options=short)
    assert list(part) == ["weight", "bias"]
    other = build("plain", seed=5)
    set_model_state_dict(other, {other[0][0]: part}, options=StateDictOptions(strict=False))
    np.testing.assert_array_equal(numbers(other[0][0].weight), numbers(m[0][0].weight))
    with pytest.raises(ConfigError, match="full_state_dict must be True"):
        get_model_state_dict(m, options=StateDictOptions(broadcast_from_rank0=True))


def test_the_begun_state_of_an_optimizer_under_its_other_name() -> None:
    model = nn.Linear(2, 2)
    before, optimizer = model.weight.detach().clone(), optim.Adam(model.parameters())
    _init_optim_state(optimizer)
    assert sorted(optimizer.state[model.weight]) == ["exp_avg", "exp_avg_sq", "step"]
    assert (model.weight == before).all() and model.weight.grad is None
