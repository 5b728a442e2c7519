"""Tensor parallelism with ``deterministic="global"``: the same bits on 1, 2, 4 and 8 ranks."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.backends import threads
from disttrain.distributed import invariant
from disttrain.distributed.fsdp import fully_shard
from disttrain.distributed.tensor import Replicate, Shard
from disttrain.distributed.tensor import parallel as tp
from disttrain.errors import ConfigError, PlacementError
from disttrain_launcher import launch

F = nn.functional
CLASSES, WIDTH, HEADS, LENGTH, BATCH, STEPS = 48, 32, 8, 8, 6, 2


class Block(nn.Module):
    """Attention and a network of two layers, with norms, as one writes them for any ranks."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.gate = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.down = nn.Linear(3 * WIDTH, WIDTH)
        self.each = WIDTH // heads

    def forward(self, x):
        h = self.n1(x)
        q, k, v = (
            f(h).unflatten(-1, (-1, self.each)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).flatten(2))
        h = self.n2(x)
        return x + self.down(F.gelu(self.up(h)) * F.silu(self.gate(h)))


class Language(nn.Module):
    def __init__(self, heads: int = HEADS, blocks: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(CLASSES, WIDTH)
        self.blocks = nn.Sequential(*(Block(heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, codes):
        return self.scores(self.norm(self.blocks(self.tokens(codes))))


def plan(sequences: bool, losses: bool) -> dict:
    rows = Shard(1) if sequences else Replicate()
    columns = tp.ColwiseParallel(input_layouts=rows)
    back = tp.RowwiseParallel(output_layouts=rows)
    found = {
        "tokens": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=rows),
        "blocks.*.[qkv]": columns,
        "blocks.*.out": back,
        "blocks.*.up": columns,
        "blocks.*.gate": columns,
        "blocks.*.down": back,
        "scores": tp.ColwiseParallel(
            input_layouts=rows, output_layouts=Shard(-1) if losses else Replicate(),
            use_local_output=not losses,
        ),
    }  # fmt: skip
    if sequences:
        norm = tp.SequenceParallel(use_local_output=True)
        found |= {"blocks.*.n1": norm, "blocks.*.n2": norm, "norm": norm}
    return found


def data() -> tuple:
    rng = np.random.default_rng(3)
    shape = (STEPS, BATCH, LENGTH)
    return tuple(dt.from_numpy(rng.integers(0, CLASSES, shape)) for _ in range(2))


def whole(t):
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def bits(named) -> dict[str, bytes]:
    return {n: whole(t).detach().view(dt.uint8).numpy().tobytes() for n, t in named}


def train(sequences=False, losses=False, kind="float32", smoothing=0.0, threads_between=0):
    """The bits of losses, norms, gradients and weights."""
    dist.init_process_group()
    dt.manual_seed(5)
    model = Language().to(getattr(dt, kind))
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    tp.parallelize_module(model, mesh, plan(sequences, losses), deterministic="global")
    optimizer = dt.optim.AdamW(model.parameters(), lr=0.01)
    told = []
    codes, targets = data()
    for step in range(STEPS):
        out = model(codes[step]).flatten(0, 1)
        with tp.loss_parallel():
            loss = F.cross_entropy(out, targets[step].flatten(), label_smoothing=smoothing)
            loss.backward()
        told.append(whole(loss).item())
        if sequences:  # plain gradients of pieces: none here, norms are DTensors
            assert all(hasattr(p.grad, "placements") for p in model.blocks.parameters())
        told.append(float(invariant.clip_grad_norm_(model.parameters(), 0.5)))
        grads = bits((n, p.grad) for n, p in model.named_parameters())
        optimizer.step()
        optimizer.zero_grad()
        if threads_between:
            threads.set_count(threads_between)
    found = told, grads, bits(model.named_parameters())
    dist.destroy_process_group()
    return found


def on(ranks, *args, **kwargs):
    return dist.simulate(functools.partial(train, *args, **kwargs), ranks, seed=ranks).results


@pytest.mark.simulated
@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
def test_the_same_bits_on_any_number_of_ranks(sequences, losses, kind):
    (alone,) = on(1, sequences, losses, kind)
    assert len(set(alone[0])) == 2 * STEPS
    for ranks in (2, 4, 8):
        for found in on(ranks, sequences, losses, kind):
            assert found == alone, ranks


@pytest.mark.simulated
def test_smoothed_losses_too():
    (alone,) = on(1, losses=True, smoothing=0.1)
    for found in on(4, losses=True, smoothing=0.1):
        assert found == alone


def together(data_ranks, ranks, kind, sequences=False):
    """The bits of norms and weights where every rank of "tp" has replicas or shards beside."""
    dist.init_process_group()
    dt.manual_seed(5)
    model = Language()
    shape, names = (data_ranks, ranks), ("dp", "tp")
    if kind == "hsdp":
        shape, names = (2, data_ranks // 2, ranks), ("rep", "dp", "tp")
    mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=names)
    tp.parallelize_module(model, mesh["tp"], plan(sequences, True), deterministic="global")
    if kind == "ddp":
        net = dist.DistributedDataParallel(model, device_mesh=mesh["dp"], deterministic="global")
    else:
        data_mesh = mesh["rep", "dp"] if kind == "hsdp" else mesh["dp"]
        for block in model.blocks:
            fully_shard(block, mesh=data_mesh)
        net = fully_shard(model, mesh=data_mesh, deterministic="global")
    optimizer = dt.optim.AdamW(model.parameters(), lr=0.01)
    rng = np.random.default_rng(3)
    codes, targets = (
        dt.from_numpy(rng.integers(0, CLASSES, (STEPS, 16, LENGTH))) for _ in range(2)
    )
    norms = []
    for step in range(STEPS):
        for shard in net.shards.ids:
            rows = slice(2 * shard, 2 * shard + 2)
            with tp.loss_parallel():
                out = net(codes[step, rows]).flatten(0, 1)
                F.cross_entropy(out, targets[step, rows].flatten()).backward()
        norms.append(float(invariant.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
        optimizer.zero_grad()
    found = norms, bits(model.named_parameters())
    dist.destroy_process_group()
    return found


@pytest.mark.simulated
@pytest.mark.parametrize("sequences", [False, True])
def test_beside_replicas_and_shards(sequences):
    (alone,) = dist.simulate(functools.partial(together, 1, 1, "ddp", sequences), 1).results
    grids = [(2, 1, "ddp"), (2, 2, "ddp"), (1, 4, "fsdp"), (4, 2, "fsdp"), (4, 2, "hsdp")]
    for data_ranks, ranks, kind in grids:
        body = functools.partial(together, data_ranks, ranks, kind, sequences)
        for found in dist.simulate(body, data_ranks * ranks, seed=3).results:
            assert found == alone, (data_ranks, ranks, kind)


@pytest.mark.simulated
def test_any_number_of_threads():
    """Every forward takes one thread, whatever the program has set meanwhile."""
    before = threads.count()
    try:
        alone, *others = (found for n in (1, 2, 3, 4) for found in on(2, threads_between=n))
    finally:
        threads.set_count(before)
    assert all(other == alone for other in others)


def odd_sizes():
    """Gradients of layers whose sizes the virtual shards divide in part."""
    dist.init_process_group()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    dt.manual_seed(0)
    odd = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
    styles = {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()}
    tp.parallelize_module(odd, mesh, styles, deterministic="global")
    odd(dt.ones(2, 6)).sum().backward()
    found = bits((n, p.grad) for n, p in odd.named_parameters())
    dist.destroy_process_group()
    return found


@pytest.mark.simulated
def test_odd_sizes_are_cut_as_far_as_they_can_be():
    (alone,) = dist.simulate(odd_sizes, 1).results
    for found in dist.simulate(odd_sizes, 2).results:
        assert found == alone

    def body():
        with pytest.raises(PlacementError, match="10 elements lie on several ranks"):
            odd_sizes()

    dist.simulate(body, 4)


@pytest.mark.simulated
def test_what_no_tree_fits_is_refused():
    def body():
        dist.init_process_group()
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        how = {"deterministic": "global"}
        for shards in (3, 6, 1, 0, -2):
            with pytest.raises(ConfigError, match="a power of two that the number of ranks"):
                tp.parallelize_module(
                    nn.Linear(4, 4), mesh, tp.ColwiseParallel(), virtual_shards=shards, **how
                )
        with pytest.raises(ConfigError, match="deterministic: 'local' given"):
            tp.parallelize_module(
                nn.Linear(4, 4), mesh, tp.ColwiseParallel(), deterministic="local"
            )

    dist.simulate(body, 2)


def test_real_ranks_have_the_bits_of_simulated_ones():
    (alone,) = on(1, True, True)
    for found in launch(functools.partial(train, True, True), 2):
        assert found == alone
