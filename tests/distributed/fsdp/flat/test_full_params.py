"""Whole parameters outside of forward; state dicts; optimizer states; clipping."""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    OptimStateKeyType,
    ShardingStrategy,
    StateDictType,
)
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP
from disttrain.distributed.fsdp.flat import traversal
from disttrain.distributed.fsdp.flat.wrapper import TrainingState
from disttrain.distributed.fsdp.wrap import ModuleWrapPolicy
from disttrain.distributed.tensor import DTensor
from disttrain.errors import AutogradError, ShapeError, StateDictError
from support.rounding import Sums
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=12, depth=2 * 3)

NAMES = ["0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias", "1.weight", "1.bias"]
BOTH = pytest.mark.parametrize("orig", [False, True], ids=["flat", "orig"])


def plain(seed: int = 3) -> nn.Module:
    manual_seed(seed)
    return nn.Sequential(nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7)), nn.Linear(7, 3)).double()


def wrapped(orig: bool, seed: int = 3, **options: Any) -> FSDP:
    options = {"auto_wrap_policy": ModuleWrapPolicy({nn.Sequential}), **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FSDP(plain(seed), use_orig_params=orig, **options)


def backward(m: nn.Module) -> None:
    """Gradients of a loss over all ranks' inputs."""
    x = np.random.default_rng(7).standard_normal((12, 5))
    if isinstance(m, FSDP):
        x = x[dist.get_rank() :: dist.get_world_size()]
    (m(core.wrap(x)) ** 2).mean().backward()


def values(m: nn.Module) -> dict[str, np.ndarray]:
    return {n: p.detach().numpy().copy() for n, p in m.named_parameters()}


@BOTH
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
def test_summoned_parameters_are_the_modules(strategy: str, orig: bool) -> None:
    def body() -> None:
        m = wrapped(orig, sharding_strategy=ShardingStrategy[strategy])
        before = [id(p) for p in m.parameters()]
        shapes = [tuple(p.shape) for p in m.parameters()]
        with FSDP.summon_full_params(m):
            got = values(m)
            assert list(got) == NAMES
            for name, p in plain().named_parameters():
                np.testing.assert_array_equal(got[name], p.detach().numpy())
            assert isinstance(m.module[1].weight, nn.Parameter)
        assert [id(p) for p in m.parameters()] == before
        assert [tuple(p.shape) for p in m.parameters()] == shapes
        assert len(before) == (6 if orig else 2)

    on_ranks(body, 3)


@BOTH
@pytest.mark.parametrize("keep", [False, True])
def test_what_is_written_is_kept_with_writeback(keep: bool, orig: bool) -> None:
    def body() -> None:
        m = wrapped(orig)
        with FSDP.summon_full_params(m, writeback=keep), core.no_grad():
            m.module[1].weight.fill_(2.0)
            m.module[0][0].bias = nn.Parameter(core.wrap(np.full(7, 5.0)))
        with FSDP.summon_full_params(m):
            assert (values(m)["1.weight"] == 2.0).all() == keep
            assert (values(m)["0.0.bias"] == 5.0).all() == keep
        with pytest.raises(ShapeError, match="parameter shape changes"), FSDP.summon_full_params(m):
            m.module[1].weight = nn.Parameter(core.wrap(np.zeros((2, 2))))
        backward(m)

    on_ranks(body, 2)


def test_one_rank_alone_and_one_unit_alone() -> None:
    def body() -> None:
        m = wrapped(False)
        with FSDP.summon_full_params(m, rank0_only=True, writeback=False):
            assert (len(list(m.parameters())) == 6) == (dist.get_rank() == 0)
        with FSDP.summon_full_params(m, recurse=False):
            assert len(list(m.parameters())) == 3
        with FSDP.summon_full_params(m[0]):
            assert [n for n, _ in m[0].named_parameters()] == [
                "0.weight",
                "0.bias",
                "1.weight",
                "1.bias",
            ]
        with pytest.raises(NotImplementedError), FSDP.summon_full_params(m, rank0_only=True):
            pass
        with pytest.raises(NotImplementedError), FSDP.summon_full_params(m, with_grads=True):
            pass

    on_ranks(body, 2)


def test_gradients_are_summoned_and_written_back() -> None:
    ref = plain()
    backward(ref)
    want = {n: p.grad.numpy() for n, p in ref.named_parameters()}

    def body() -> None:
        m = wrapped(True)
        with FSDP.summon_full_params(m, with_grads=True):
            assert all(p.grad is None for p in m.parameters())
        backward(m)
        with FSDP.summon_full_params(m, with_grads=True):
            for n, p in m.named_parameters():
                SUMS.equal(p.grad.numpy(), want[n])
                p.grad = p.grad * 3
        with FSDP.summon_full_params(m, with_grads=True):
            for n, p in m.named_parameters():
                SUMS.equal(p.grad.numpy(), want[n] * 3)

    on_ranks(body, 3)


def test_not_during_forward_and_not_outside_of_it() -> None:
    def body() -> None:
        m = wrapped(False)

        def look(*args: Any) -> None:
            with FSDP.summon_full_params(m):
                pass

        handle = m.module[1].register_forward_pre_hook(look)
        with pytest.raises(AssertionError, match="Cannot manually unshard parameters during"):
            backward(m)
        handle.remove()
        with pytest.raises(AutogradError, match=r"inside FSDP\.summon_full_params"):
            print(m.module[1].weight)
        m.apply(lambda part: isinstance(part, nn.Linear) and nn.init.ones_(part.weight))
        with FSDP.summon_full_params(m):
            assert (values(m)["1.weight"] == 1).all()
        assert m.check_is_root()
        assert not m[0].check_is_root()
        with pytest.raises(RuntimeError, match="no_sync"), m[0].no_sync():
            pass
        with pytest.raises(RuntimeError, match="root FSDP instance"):
            m[0].clip_grad_norm_(1.0)

    on_ranks(body, 2)


@BOTH
@pytest.mark.parametrize("kind", list(StateDictType))
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "NO_SHARD"])
def test_state_dicts_come_back(strategy: str, kind: StateDictType, orig: bool) -> None:
    def body() -> None:
        options = {"sharding_strategy": ShardingStrategy[strategy]}
        m, other = wrapped(orig, **options), wrapped(orig, seed=9, **options)
        with FSDP.state_dict_type(m, kind):
            state = m.state_dict()
        if kind is StateDictType.FULL_STATE_DICT:
            assert list(state) == NAMES
            plain(4).load_state_dict(state)
        elif kind is StateDictType.SHARDED_STATE_DICT:
            assert list(state) == NAMES
            assert all(isinstance(v, DTensor) for v in state.values())
        with FSDP.state_dict_type(other, kind):
            other.load_state_dict(state)
        with FSDP.summon_full_params(m), FSDP.summon_full_params(other):
            for name, value in values(m).items():
                np.testing.assert_array_equal(values(other)[name], value)
        assert FSDP.get_state_dict_type(m).state_dict_type is StateDictType.FULL_STATE_DICT

    on_ranks(body, 3)


def test_misfits_and_rank_0_alone() -> None:
    def body() -> None:
        m = wrapped(False)
        only = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, only):
            state = m.state_dict()
        assert list(state) == (NAMES if dist.get_rank() == 0 else [])
        full = dict(m.state_dict())
        full["1.weight"] = core.wrap(np.zeros((2, 2)))
        full["more"] = full.pop("1.bias")
        with pytest.raises(StateDictError) as error:
            m.load_state_dict(full)
        assert "size mismatch for 1.weight" in str(error.value)
        assert "1.bias" in str(error.value)
        assert "more" in str(error.value)
        with pytest.raises(StateDictError, match="Expected state_dict_config of type"):
            FSDP.set_state_dict_type(m, StateDictType.SHARDED_STATE_DICT, only)

    on_ranks(body, 2)


@BOTH
def test_converted_and_moved_models_go_on(orig: bool) -> None:
    def body() -> list:
        m = wrapped(orig).float()
        x = core.wrap(np.random.default_rng(7).standard_normal((8, 5)).astype("f4"))
        (m(x) ** 2).mean().backward()
        assert {p.dtype for p in m.parameters()} == {dt.float32}
        assert {p.grad.dtype for p in m.parameters() if p.grad is not None} == {dt.float32}
        m.to("cpu")
        state = m.state_dict()
        assert state["1.weight"].dtype is dt.float32
        return [state["1.weight"].numpy(), m(x).detach().numpy()]

    for weight, out in on_ranks(body, 2):
        ref = plain().float()
        np.testing.assert_array_equal(weight, ref[1].weight.detach().numpy())
        x = core.wrap(np.random.default_rng(7).standard_normal((8, 5)).astype("f4"))
        np.testing.assert_allclose(out, ref(x).detach().numpy(), atol=1e-6)


# -- optimizer states ----------------------------------------------------------------------------


def optimizer_of(m: nn.Module) -> Any:
    return optim.AdamW(m.parameters(), lr=0.1)


def step(m: nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    backward(m)
    optimizer.step()


@functools.cache
def reference() -> dict[str, dict[str, np.ndarray]]:
    m = plain()
    optimizer = optimizer_of(m)
    step(m, optimizer)
    state = optimizer.state_dict()["state"]
    names = [n for n, _ in m.named_parameters()]
    return {names[i]: {k: v.numpy().copy() for k, v in s.items()} for i, s in state.items()}


def assert_reference(state: dict[str, Any]) -> None:
    assert set(state) == set(reference())
    for name, theirs in reference().items():
        for key, value in theirs.items():
            got = state[name][key]
            got = got.full_tensor() if isinstance(got, DTensor) else got
            SUMS.equal(got.numpy(), value, err_msg=name)


@BOTH
@pytest.mark.parametrize("kind", ["full", "sharded"])
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "NO_SHARD"])
def test_optimizer_states_by_name(strategy: str, kind: str, orig: bool) -> None:
    def body() -> None:
        options = {"sharding_strategy": ShardingStrategy[strategy]}
        m = wrapped(orig, **options)
        optimizer = optimizer_of(m)
        step(m, optimizer)
        chosen = StateDictType[f"{kind.upper()}_STATE_DICT"]
        FSDP.set_state_dict_type(m, chosen)
        state = FSDP.optim_state_dict(m, optimizer)
        assert_reference(state["state"])
        other = wrapped(not orig, seed=4, auto_wrap_policy=None)
        FSDP.set_state_dict_type(other, chosen)
        theirs = optimizer_of(other)
        theirs.load_state_dict(FSDP.optim_state_dict_to_load(other, theirs, state))
        assert_reference(FSDP.optim_state_dict(other, theirs)["state"])

    on_ranks(body, 2)


@BOTH
def test_optimizer_states_scattered_from_rank_0_to_fewer_ranks(orig: bool) -> None:
    def body() -> None:
        m = wrapped(orig)
        optimizer = optimizer_of(m)
        step(m, optimizer)
        state = FSDP.full_optim_state_dict(m, optimizer)
        assert bool(state) == (dist.get_rank() == 0)
        group = dist.new_group([0, 2])
        if dist.get_rank() not in (0, 2):
            return
        other = wrapped(orig, process_group=group)
        theirs = optimizer_of(other)
        mine = state if dist.get_rank() == 0 else None
        own = FSDP.scatter_full_optim_state_dict(mine, other, optim=theirs, group=group)
        theirs.load_state_dict(own)
        again = FSDP.full_optim_state_dict(other, theirs, rank0_only=False, group=group)
        assert_reference(again["state"])

    on_ranks(body, 3)


def test_optimizer_states_of_other_keys_and_misfits() -> None:
    def body() -> None:
        m = wrapped(False)
        optimizer = optimizer_of(m)
        step(m, optimizer)
        state = FSDP.full_optim_state_dict(m, optimizer, rank0_only=False)
        ref = plain()
        theirs = optimizer_of(ref)
        ids = FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, ref, optim=theirs)
        assert sorted(ids["state"]) == list(range(6))
        theirs.load_state_dict(ids)
        names = FSDP.rekey_optim_state_dict(
            theirs.state_dict(), OptimStateKeyType.PARAM_NAME, ref, optim=theirs
        )
        assert_reference(names["state"])
        state["state"]["1.bias"]["step"] = core.wrap(np.array(9.0, "f4"))
        with pytest.raises(ValueError, match="scalar state with the same value"):
            FSDP.shard_full_optim_state_dict(state, m, optim=optimizer)
        few = list(m.parameters())[: 1 if dist.get_rank() else 2]
        part = optim.AdamW(few)
        step(m, part)
        with pytest.raises(StateDictError, match="some ranks are missing some of those states"):
            FSDP.full_optim_state_dict(m, part)
        only = FullOptimStateDictConfig(rank0_only=True)
        with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, None, only):
            assert bool(FSDP.optim_state_dict(m, optimizer)) == (dist.get_rank() == 0)

    on_ranks(body, 2)


# -- clipping ------------------------------------------------------------------------------------


@BOTH
def test_parameters_can_be_copied(orig: bool) -> None:
    def body() -> None:
        m = wrapped(orig)
        for copied, p in zip(copy.deepcopy(list(m.parameters())), m.parameters(), strict=True):
            np.testing.assert_array_equal(copied.detach().numpy(), p.detach().numpy())
            assert copied is not p
        with pytest.raises(AssertionError, match="does not support deepcopy"):
            copy.deepcopy(m)

    on_ranks(body, 2)


def test_parameters_replaced_outside_and_optimizers_made_before() -> None:
    def body() -> None:
        module = plain()
        optimizer = optim.SGD(module.parameters(), lr=1.0)
        kept = list(module.parameters())
        m = FSDP(module, use_orig_params=True)
        assert all(a is b for a, b in zip(kept, m.parameters(), strict=True))
        weight = m.module[1].weight
        weight.data = core.wrap(np.full(weight.shape, 2.0))
        bias = m.module[1].bias
        m.module[1].bias = nn.Parameter(core.wrap(np.full(bias.shape, 3.0)))
        before = m.state_dict()
        assert (before["1.weight"].numpy() == 2).all()
        assert (before["1.bias"].numpy() == 3).all()
        backward(m)
        optimizer.step()
        after = m.state_dict()
        ref = plain()
        ref.load_state_dict(before)
        theirs = optim.SGD(ref.parameters(), lr=1.0)
        backward(ref)
        theirs.step()
        for name in NAMES[:-1]:  # the optimizer does not know the new bias
            want = ref.state_dict()[name].numpy()
            SUMS.equal(after[name].numpy(), want)
        assert (after["1.bias"].numpy() == 3).all()
        weight.data = core.wrap(np.zeros((9, 9)))
        with pytest.raises(ShapeError, match="parameter shape changes"):
            m.state_dict()

    on_ranks(body, 2)


def test_programs_can_look_at_units() -> None:
    def body() -> None:
        m = wrapped(False)
        assert len(traversal._get_fsdp_states(m)) == 2
        handles = traversal._get_fsdp_handles(m)
        assert [h.flat_param._fqns for h in handles] == [
            ("1.weight", "1.bias"), ("0.weight", "0.bias", "1.weight", "1.bias"),
        ]  # fmt: skip
        assert handles[0].flat_param._shapes == ((3, 7), (3,))
        assert all(h.uses_sharded_strategy and h.sharded_grad is None for h in handles)
        assert m.training_state is TrainingState.IDLE
        m._assert_state(TrainingState.IDLE)
        with FSDP.summon_full_params(m), pytest.raises(ValueError, match="expected to be in"):
            m._assert_state(TrainingState.IDLE)
        assert FSDP.fsdp_modules(m, root_only=True) == [m]
        intra, inter = traversal._init_intra_and_inter_node_groups(dist.group.WORLD, 2)
        assert (intra.size, inter.size) == (2, 1)

    on_ranks(body, 2)
