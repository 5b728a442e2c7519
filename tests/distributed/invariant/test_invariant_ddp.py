"""DDP with ``deterministic="global"``: the same bits on 1, 2, 4 and 8 ranks."""

from __future__ import annotations

import functools

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed import invariant
from disttrain.distributed.fsdp import MixedPrecision
from disttrain.errors import AutogradError, ConfigError
from disttrain_launcher import launch
from support.cases.invariant_cases import BATCH, MODELS, STEPS, bits, mlp, task
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=32, depth=2 * 2)

F = nn.functional


def train(name, steps, start=None, cap=None, clip=True):
    """``steps`` steps, from the state ``start``; the state after them, as raw bits."""
    dist.init_process_group()
    dt.manual_seed(7 + dist.get_rank())  # the first rank's seed counts
    model = MODELS[name]()
    net = dist.DistributedDataParallel(model, bucket_cap_mb=cap, deterministic="global")
    optimizer = dt.optim.AdamW(model.parameters(), lr=0.01)
    if start is not None:
        model.load_state_dict(start["model"])
        optimizer.load_state_dict(start["optimizer"])
        net.shards.load_state_dict(start["shards"])
    data = task(name)
    sampler = invariant.VirtualShardSampler(data, net.shards, BATCH, seed=1)
    batches = list(dt.data.DataLoader(data, batch_sampler=sampler))
    for x, y in batches[net.shards.step * net.shards.each :][: steps * net.shards.each]:
        F.cross_entropy(net(x), y).backward()
        if net.shards.step_complete:
            if clip:
                invariant.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "shards": net.shards.state_dict(),
    }
    dist.destroy_process_group()
    return state


def on(ranks, *args, **kwargs):
    """The state of every rank of a simulated run."""
    return dist.simulate(functools.partial(train, *args, **kwargs), ranks, seed=ranks).results


@pytest.mark.simulated
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_bitwise_the_same_on_any_number_of_ranks(name):
    (alone,) = on(1, name, STEPS)
    fresh = bits(on(1, name, 0)[0])
    trained = {n: b for n, b in bits(alone).items() if not n.startswith("base.")}
    assert all(fresh[n] != b for n, b in trained.items())
    for ranks in (2, 4, 8):
        for state in on(ranks, name, STEPS):
            assert bits(state) == bits(alone), (name, ranks)


@pytest.mark.simulated
def test_bucket_sizes_do_not_matter():
    whole = on(2, "gpt", 2)[0]
    for cap in (1e-4, 1e-3):
        assert bits(on(2, "gpt", 2, cap=cap)[1]) == bits(whole)


@pytest.mark.simulated
def test_a_run_goes_on_with_another_number_of_ranks():
    (whole,) = on(1, "cnn", STEPS)
    state = None
    for ranks in (4, 1, 8):
        state = on(ranks, "cnn", 1, start=state)[0]
    assert bits(state) == bits(whole)


def test_real_ranks_have_the_bits_of_simulated_ones():
    (alone,) = on(1, "mlp", STEPS)
    for state in launch(functools.partial(train, "mlp", STEPS), 2):
        assert bits(state) == bits(alone)


@pytest.mark.simulated
def test_gradients_are_the_mean_over_all_shards():
    """The same mathematics as DDP on the whole batch."""

    def body():
        dist.init_process_group()
        dt.manual_seed(0)
        model = mlp().double()
        model[2].p = 0.0
        x, y = (t[:BATCH] for t in task("mlp").tensors)
        net = dist.DistributedDataParallel(model, deterministic="global", virtual_shards=4)
        for v in net.shards.ids:
            part = slice(v * 4, v * 4 + 4)
            F.cross_entropy(net(x[part].double()), y[part]).backward()
        got = [p.grad.numpy().copy() for p in model.parameters()]
        net.close()
        model.zero_grad()
        F.cross_entropy(model(x.double()), y).backward()
        want = [p.grad.numpy() for p in model.parameters()]
        dist.destroy_process_group()
        return got, want

    for got, want in dist.simulate(body, 2).results:
        for a, b in zip(got, want, strict=True):
            SUMS.equal(a, b)


@pytest.mark.simulated
def test_unused_parameters_keep_none_and_gradients_accumulate():
    def body():
        dist.init_process_group()
        dt.manual_seed(0)
        model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "c": nn.Linear(2, 2)})

        class Some(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = model

            def forward(self, x, also):
                x = self.parts["a"](x)
                return self.parts["b"](x) if also else x

        net = dist.DistributedDataParallel(Some(), deterministic="global", virtual_shards=4)
        seen = []
        for _ in range(2):
            for v in net.shards.ids:
                net(dt.ones(1, 2), v == 2).sum().backward()
            seen.append(model["b"].weight.grad.numpy().copy())
        unused = model["c"].weight.grad
        dist.destroy_process_group()
        return seen, unused

    results = dist.simulate(body, 2).results + dist.simulate(body, 1).results
    for (once, twice), unused in results:
        assert unused is None and (once != 0).all()
        assert (twice == 2 * once).all() and (once == results[0][0][0]).all()


@pytest.mark.simulated
def test_what_does_not_go_with_it_is_refused():
    def body():
        dist.init_process_group()
        with pytest.raises(ConfigError, match="deterministic: 'yes' given; needed is None or"):
            dist.DistributedDataParallel(nn.Linear(2, 2), deterministic="yes")
        with pytest.raises(ConfigError, match="virtual_shards: 8 given for 3 ranks"):
            dist.DistributedDataParallel(nn.Linear(2, 2), deterministic="global")
        net = dist.DistributedDataParallel(
            nn.Linear(2, 2), deterministic="global", virtual_shards=3
        )
        with pytest.raises(ConfigError, match="the communication hook"):
            net.register_comm_hook(None, print)
        with pytest.raises(ConfigError, match="join, a report"), net.join():
            net(dt.ones(1, 2))
        with pytest.raises(ConfigError, match="mixed_precision=MixedPrecision"):
            dist.DistributedDataParallel(
                nn.Linear(2, 2), deterministic="global", virtual_shards=3,
                mixed_precision=MixedPrecision(param_dtype=dt.bfloat16),
            )  # fmt: skip
        dist.destroy_process_group()

    dist.simulate(body, 3)


@pytest.mark.simulated
def test_a_backward_that_broke_off_is_told():
    def body():
        dist.init_process_group()
        net = dist.DistributedDataParallel(nn.Linear(2, 2), deterministic="global")
        out = net(dt.ones(1, 2, requires_grad=True)).sum()

        def fail(grad):
            raise ValueError("no")

        net.module.bias.register_post_accumulate_grad_hook(fail)
        with pytest.raises(ValueError, match="no"):
            out.backward()
        with pytest.raises(AutogradError, match="virtual shard 0 of step 0 ended in the middle"):
            net(dt.ones(1, 2))
        dist.destroy_process_group()

    dist.simulate(body, 1)
