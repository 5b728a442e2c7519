"""``fully_shard`` with ``deterministic="global"``: DDP's bits on any number of ranks."""

from __future__ import annotations

import functools

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed import invariant
from disttrain.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from disttrain.errors import ConfigError
from disttrain_launcher import launch
from support.cases.invariant_cases import BATCH, MODELS, STEPS, bits, task

F = nn.functional


def train(name, steps, kind="fsdp", start=None, policy=None, mesh_shape=None):
    """``steps`` steps, from the state ``start``; the whole state after them."""
    dist.init_process_group()
    dt.manual_seed(7 + dist.get_rank())
    model = MODELS[name]()
    if start is None:  # fully_shard takes every rank's own values
        for p in model.parameters():
            dist.broadcast(p.data, 0)
    else:
        model.load_state_dict(start["model"])
    if kind == "ddp":
        net = dist.DistributedDataParallel(model, deterministic="global")
    else:
        mesh = dist.init_device_mesh("cpu", mesh_shape) if mesh_shape else None
        parts = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
        for part in parts if name != "tied" else []:  # what two modules share is the root's
            fully_shard(part, mesh=mesh, mp_policy=policy)
        net = fully_shard(model, mesh=mesh, mp_policy=policy, deterministic="global")
    if start is not None:
        net.shards.load_state_dict(start["shards"])
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    if start is None and steps:  # state that sharding cuts, too, where no resume is tested
        optimizer = dt.optim.AdamW(model.parameters(), lr=0.01)
    data = task(name)
    sampler = invariant.VirtualShardSampler(data, net.shards, BATCH, seed=1)
    batches = list(dt.data.DataLoader(data, batch_sampler=sampler))
    for x, y in batches[net.shards.step * net.shards.each :][: steps * net.shards.each]:
        F.cross_entropy(net(x), y).backward()
        if net.shards.step_complete:
            invariant.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    whole = {n: t.full_tensor() if hasattr(t, "full_tensor") else t
             for n, t in model.state_dict().items()}  # fmt: skip
    state = {"model": whole, "shards": net.shards.state_dict()}
    dist.destroy_process_group()
    return state


def on(ranks, *args, **kwargs):
    """The state of every rank of a simulated run."""
    return dist.simulate(functools.partial(train, *args, **kwargs), ranks, seed=ranks).results


@pytest.mark.simulated
@pytest.mark.parametrize("name", MODELS)
def test_sharded_weights_have_the_bits_of_whole_ones(name):
    (alone,) = on(1, name, STEPS, "ddp")
    for ranks in (1, 2, 4, 8):
        for state in on(ranks, name, STEPS):
            assert bits(state) == bits(alone), (name, ranks)


@pytest.mark.simulated
def test_replicas_of_shards_have_them_too():
    (alone,) = on(1, "gpt", STEPS, "ddp")
    for shape in ((2, 2), (2, 4), (4, 1)):
        for state in on(shape[0] * shape[1], "gpt", STEPS, mesh_shape=shape):
            assert bits(state) == bits(alone), shape


@pytest.mark.simulated
def test_a_run_goes_on_sharded_otherwise():
    state = on(1, "cnn", 0)[0]
    plans = [(4, "fsdp"), (2, "ddp"), (8, "fsdp")]
    for ranks, kind in plans:
        state = on(ranks, "cnn", 1, kind, start=state)[0]
    whole = on(1, "cnn", 0)[0]
    for _ in plans:
        whole = on(1, "cnn", 1, "ddp", start=whole)[0]
    assert bits(state) == bits(whole) and state["shards"]["step"] == 3


@pytest.mark.simulated
def test_bfloat16_weights_keep_the_bits_where_sums_are_float32():
    policy = MixedPrecisionPolicy(param_dtype=dt.bfloat16, reduce_dtype=dt.float32)
    (alone,) = on(1, "mlp", 2, policy=policy)
    for state in on(4, "mlp", 2, policy=policy):
        assert bits(state) == bits(alone)
    assert bits(alone) != bits(on(1, "mlp", 2)[0])


def test_real_ranks_have_the_bits_of_simulated_ones():
    (alone,) = on(1, "gpt", STEPS, "ddp")
    for state in launch(functools.partial(train, "gpt", STEPS), 2):
        assert bits(state) == bits(alone)


@pytest.mark.simulated
def test_what_would_depend_on_the_ranks_is_refused():
    def body():
        dist.init_process_group()
        policy = MixedPrecisionPolicy(reduce_dtype=dt.bfloat16)
        with pytest.raises(ConfigError, match="rounded once per reduction"):
            fully_shard(nn.Linear(4, 4), mp_policy=policy, deterministic="global")
        with pytest.raises(ConfigError, match="virtual_shards: 9 given for 2 ranks"):
            fully_shard(nn.Linear(4, 4), deterministic="global", virtual_shards=9)
        with pytest.raises(ConfigError, match="deterministic: 'always' given"):
            fully_shard(nn.Linear(4, 4), deterministic="always")
        with pytest.raises(ConfigError, match="it has no virtual shards"):
            fully_shard(nn.Linear(4, 4)).shards
        net = fully_shard(nn.Linear(4, 4), deterministic="global")
        net.set_requires_gradient_sync(False)
        with pytest.raises(ConfigError, match="was told to leave out a reduction"):
            net(dt.ones(1, 4))
        dist.destroy_process_group()

    dist.simulate(body, 2)
