"""DTensors in programs: views, writes, random numbers, modules, optimizers, transforms."""

from __future__ import annotations

import copy
import io
import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed import tensor as dtensor
from disttrain.distributed.tensor import (
    DTensor,
    NamedSharding,
    Partial,
    PartitionSpec,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    init_device_mesh,
    spec_of,
)
from disttrain_launcher import launch
from support.meshes import numbers, on_mesh, run_on, spread
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=12, depth=2 * 4 * 3)


@pytest.mark.simulated
@on_mesh(2)
def test_writes_through_views_reach_their_base_wherever_it_lies(mesh):
    for placements in ([Shard(0)], [Shard(1)], [Replicate()], [Partial()]):
        one = numbers(4, 6)
        x, base = spread(one, mesh, placements), one.clone()
        row, there = x[1], base[1]
        column, beside = x.T[2:4], base.T[2:4]
        row.mul_(2)
        there.mul_(2)
        column += row[:1]
        beside += there[:1]
        x.reshape(-1)[5:9].zero_()
        base.reshape(-1)[5:9].zero_()
        a, b = x.chunk(2, 1)
        c, d = base.chunk(2, 1)
        b.copy_(a)
        d.copy_(c)
        for got, want in ((x, base), (row, there), (column, beside), (a, c), (b, d)):
            assert dt.allclose(got.full_tensor(), want)


@pytest.mark.simulated
@on_mesh(2)
def test_gradients_of_writes_through_views(mesh):
    def f(x):
        y = x * 2
        y[0] *= 3
        y[:, 1:].add_(x[:, :2])
        return (y**2).sum()

    one = numbers(4, 3).requires_grad_()
    x = spread(one.detach(), mesh, [Shard(0)]).requires_grad_()
    f(one).backward()
    f(x).backward()
    assert dt.allclose(x.grad.full_tensor(), one.grad)


@pytest.mark.simulated
@on_mesh(2, 2)
def test_random_numbers_are_those_of_one_process(mesh):
    dt.manual_seed(3)
    wanted = [dt.rand(5, 3), dt.randn(4), nn.functional.dropout(dt.ones(6, 5), 0.4)]
    filled = dt.empty(3, 7).uniform_(-1, 1)
    after = dt.rand(2)
    dt.manual_seed(3)
    got = [
        dtensor.rand(5, 3, device_mesh=mesh, placements=[Shard(0), Shard(1)]),
        dtensor.randn(4, device_mesh=mesh, placements=[Replicate(), Shard(0)]),
        nn.functional.dropout(spread(dt.ones(6, 5), mesh, [Shard(0), Shard(1)]), 0.4),
    ]
    for a, b in zip(got, wanted, strict=True):
        assert dt.equal(a.full_tensor(), b)
    target = dtensor.empty(3, 7, device_mesh=mesh, placements=[Shard(1), Shard(0)])
    assert dt.equal(target.uniform_(-1, 1).full_tensor(), filled)
    assert dt.equal(dt.rand(2), after)


@pytest.mark.simulated
@on_mesh(2)
def test_random_numbers_agree_though_seeds_do_not(mesh):
    dt.manual_seed(mesh.get_rank())
    x = dtensor.randn(8, device_mesh=mesh, placements=[Replicate()])
    whole = x.to_local()
    other = whole.clone()
    dist.broadcast(other, 0)
    assert dt.equal(whole, other)
    weight = nn.Parameter(dtensor.empty(6, 4, device_mesh=mesh, placements=[Shard(0)]))
    nn.init.kaiming_uniform_(weight)
    nn.init.trunc_normal_(weight)
    assert weight.full_tensor().std() > 0.3


@pytest.mark.simulated
@on_mesh(2)
def test_factories_and_their_kin(mesh):
    z = dtensor.zeros(4, 3, device_mesh=mesh, placements=[Shard(0)])
    assert tuple(z.to_local().shape) == (2, 3) and z.dtype == dt.float32
    assert dt.equal(dtensor.ones((3,), device_mesh=mesh).full_tensor(), dt.ones(3))
    assert dtensor.full((2,), 7, device_mesh=mesh).dtype == dt.int64
    for made in (dt.ones_like(z), z.new_ones(4, 3), dt.rand_like(z), z.clone(), z.to(dt.float64)):
        assert made.placements == (Shard(0),) and made.device_mesh == mesh
    with mesh:
        assert dtensor.zeros(2).placements == (Replicate(),)
    with pytest.raises(RuntimeError, match="can be Shard or Replicate"):
        dtensor.ones(2, device_mesh=mesh, placements=[Partial()])


@pytest.mark.simulated
@on_mesh(2, 2)
def test_jax_names_for_the_same(mesh):
    whole = numbers(8, 4)
    for spec, placements in (
        (PartitionSpec("dp", None), (Shard(0), Replicate())),
        (PartitionSpec(None, "dp"), (Shard(1), Replicate())),
        (PartitionSpec(("dp", "tp")), (Shard(0), Shard(0))),
        (PartitionSpec(), (Replicate(), Replicate())),
    ):
        sharding = NamedSharding(mesh, spec)
        assert sharding.placements == placements
        x = distribute_tensor(whole, sharding)
        assert x.placements == placements and dt.equal(x.full_tensor(), whole)
        assert NamedSharding(mesh, spec_of(x)).placements == placements
        assert x.redistribute(NamedSharding(mesh, PartitionSpec("tp"))).placements[1] == Shard(0)
    with pytest.raises(RuntimeError, match="named twice"):
        _ = NamedSharding(mesh, PartitionSpec("dp", "dp")).placements
    with pytest.raises(RuntimeError, match="in the order of the mesh"):
        _ = NamedSharding(mesh, PartitionSpec(("tp", "dp"))).placements


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 12)
        self.down = nn.Linear(12, 11, bias=False)

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        return self.down(nn.functional.gelu(self.up(x)))


def cut(name, module, mesh):
    """Columns, rows, and the vocabulary, over the second axis."""
    whole = Replicate()
    plan = {"up": {"weight": 0, "bias": 0}, "down": {"weight": 1}, "embed": {"weight": 0}}
    for key, dim in plan.get(name, {}).items():
        placed = distribute_tensor(getattr(module, key), mesh, [whole, Shard(dim)])
        module.register_parameter(key, placed)


def train(make, model, tokens, target, steps=3, clip=None):
    step = make(model.parameters())
    losses = []
    for _ in range(steps):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        step.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        step.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "adafactor": lambda p: optim.Adafactor(p, lr=0.1),
}


@pytest.mark.simulated
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_cut_both_ways_trains_as_one(name):
    def model():
        dt.manual_seed(1)
        return Net().double()

    rng = np.random.default_rng(2)
    tokens, target = (dt.tensor(rng.integers(0, 11, (4, 3))) for _ in range(2))
    one = model()
    wanted = train(OPTIMIZERS[name], one, tokens, target, clip=0.5)

    def body(mesh):
        many = distribute_module(model(), mesh, cut)
        there = [spread(t, mesh, [Shard(0), Replicate()]) for t in (tokens, target)]
        got = train(OPTIMIZERS[name], many, *there, clip=0.5)
        assert isinstance(many.up.weight, DTensor) and isinstance(many.up.weight, nn.Parameter)
        whole = {k: v.full_tensor() for k, v in many.state_dict().items()}
        return got, {k: v.numpy() for k, v in whole.items()}

    losses, weights = run_on((2, 2), body)[0]
    SUMS.equal(losses, wanted)
    for key, value in one.state_dict().items():
        SUMS.equal(weights[key], value.numpy())


@pytest.mark.simulated
@on_mesh(2)
def test_hooks_of_distribute_module(mesh):
    def split(module, inputs, mesh):
        return tuple(distribute_tensor(x, mesh, [Shard(0)]) for x in inputs)

    def gather(module, outputs, mesh):
        return outputs.full_tensor()

    dt.manual_seed(1)
    layer = nn.Linear(3, 2)
    x = dt.ones(4, 3)
    wanted = layer(x)
    distribute_module(layer, mesh, None, split, gather)
    assert dt.allclose(layer(x), wanted)
    assert layer.weight.placements == (Replicate(),)


@pytest.mark.simulated
@on_mesh(2)
def test_copies_and_files(mesh):
    layer = distribute_module(nn.Linear(4, 2), mesh)
    layer.weight = nn.Parameter(distribute_tensor(numbers(2, 4), mesh, [Shard(1)]))
    other = copy.deepcopy(layer)
    other.load_state_dict(layer.state_dict())
    assert other.weight.placements == (Shard(1),)
    file = io.BytesIO()
    dt.save(layer.state_dict(), file)
    file.seek(0)
    back = dt.load(file, weights_only=False)
    assert isinstance(back["weight"], DTensor) and back["weight"].placements == (Shard(1),)
    assert dt.equal(back["weight"].full_tensor(), layer.weight.detach().full_tensor())


@pytest.mark.simulated
@on_mesh(2)
def test_transforms_see_the_whole(mesh):
    whole = numbers(4, 3)
    x = spread(whole, mesh, [Shard(0)])

    def f(row):
        return (row.sin() * row).sum()

    assert dt.allclose(dt.func.vmap(f)(x).full_tensor(), dt.func.vmap(f)(whole))
    assert dt.allclose(dt.func.grad(f)(x).full_tensor(), dt.func.grad(f)(whole))
    got = dt.func.jvp(f, (x,), (x,))[1]
    assert dt.allclose(got.full_tensor(), dt.func.jvp(f, (whole,), (whole,))[1])


@pytest.mark.simulated
@on_mesh(2)
def test_what_looks_at_numbers_looks_at_all_of_them(mesh):
    whole = dt.tensor([[3.0, 0.0, 1.0], [0.0, 2.0, 2.0]])
    x = spread(whole, mesh, [Shard(1)])
    assert dt.equal(x.nonzero().full_tensor(), whole.nonzero())
    assert dt.equal(x[x > 1].full_tensor(), whole[whole > 1])
    assert dt.equal(x.unique().full_tensor(), whole.unique())
    assert x.sum().item() == 8.0 and bool((x.max() == 3.0).any()) and x.tolist() == whole.tolist()
    assert dt.equal(x[:, [2, 0]].full_tensor(), whole[:, [2, 0]])


@pytest.mark.simulated
@on_mesh(2)
def test_an_operation_without_a_rule_says_so_once(mesh):
    from disttrain.ops.declare import declare_apart

    def swapped(a):
        return a[::-1].copy()

    prim = declare_apart("swapped", swapped, "a", {"a": lambda g: g}, DTensor.node_class)
    prim.kinds = False
    x = spread(numbers(4, 3), mesh, [Shard(0)])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        y = prim(prim(x))
    assert dt.equal(y.full_tensor(), x.full_tensor())
    if mesh.get_rank() == 0:
        assert len([w for w in said if "swapped has no rule" in str(w.message)]) >= 1


@pytest.mark.simulated
@on_mesh(2)
def test_the_meta_device(mesh):
    x = distribute_tensor(dt.empty(4, 3, device="meta"), mesh, [Shard(0)])
    assert x.is_meta and tuple((x * 2).sum(0).shape) == (3,)
    assert tuple(x.to_local().shape) == (2, 3)


@pytest.mark.simulated
def test_a_mesh_of_some_ranks():
    def body():
        dist.init_process_group()
        mesh = init_device_mesh("cpu", (2,))
        x = distribute_tensor(numbers(4, 3), mesh, [Shard(0)])
        y = (x @ x.T).relu()
        return tuple(y.shape), tuple(y.to_local().shape)

    assert dist.simulate(body, 3).results == [((4, 4), (2, 4)), ((4, 4), (2, 4)), ((4, 4), (0,))]


def _on_processes():
    dist.init_process_group()
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    x = spread(numbers(6, 5), mesh, [Shard(0)]).requires_grad_()
    w = spread(numbers(5, 4, seed=1), mesh, [Shard(1)]).requires_grad_()
    y = (x @ w).relu().redistribute(placements=[Shard(1)])
    y.sum().backward()
    return [t.full_tensor().detach().numpy() for t in (y, x.grad, w.grad)]


def test_real_processes_compute_the_same():
    x, w = numbers(6, 5).requires_grad_(), numbers(5, 4, seed=1).requires_grad_()
    y = (x @ w).relu()
    y.sum().backward()
    for found in launch(_on_processes, 2):
        for got, want in zip(found, (y.detach(), x.grad, w.grad), strict=True):
            SUMS.equal(got, want.numpy())


@pytest.mark.simulated
@on_mesh(2)
def test_search_and_checks_in_pieces(mesh):
    edges, values = dt.tensor([1.0, 3.0, 5.0]), dt.tensor([[0.5, 3.0, 9.0], [2.0, 5.0, 1.0]])
    got = dt.searchsorted(spread(edges, mesh, [Shard(0)]), spread(values, mesh, [Shard(1)]))
    assert got.placements == (Shard(1),)
    assert dt.equal(got.full_tensor(), dt.searchsorted(edges, values))


@pytest.mark.simulated
@on_mesh(2)
def test_one_element_by_its_number(mesh):
    whole = dt.tensor([[3, 4], [5, 6]])
    x = spread(whole, mesh, [Shard(0)])
    assert dt.take(x, dt.tensor(2)).full_tensor().item() == 5
    with pytest.raises(RuntimeError, match="full_tensor"):
        x.as_strided((2,), (1,))
