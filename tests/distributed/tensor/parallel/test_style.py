"""Tensor parallelism equals one process: an MLP, attention, a GPT, its loss over cut classes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn
from disttrain.core.random import manual_seed
from disttrain.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from disttrain.errors import ConfigError, DimError, PlacementError, ShapeError
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=24, depth=2 * 2 * 6)

DIM, HEADS, VOCAB, BATCH, SEQ = 8, 4, 12, 3, 8


def on_ranks(n: int, body) -> list:
    def rank():
        dist.init_process_group()
        found = body(init_device_mesh("cpu", (n,), mesh_dim_names=("tp",)))
        dist.destroy_process_group()
        return found

    return dist.simulate(rank, n).results


class MLP(nn.Module):
    def __init__(self, hidden: int = 16, bias: bool = True) -> None:
        super().__init__()
        self.w1 = nn.Linear(DIM, hidden, bias=bias)
        self.w2 = nn.Linear(hidden, DIM, bias=bias)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(DIM, DIM) for _ in range(3))
        self.wo = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (w(x) for w in (self.wq, self.wk, self.wv))
        q, k, v = (t.view(b, s, -1, DIM // HEADS).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(b, s, -1))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.RMSNorm(DIM)
        self.attention, self.mlp = Attention(), MLP()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, DIM), nn.Embedding(SEQ, DIM)
        self.layers = nn.ModuleList([Block() for _ in range(2)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(dt.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def made(kind, *args) -> nn.Module:
    manual_seed(5)
    return kind(*args).double()


def ids(seed: int = 0) -> dt.Tensor:
    return dt.tensor(np.random.default_rng(seed).integers(0, VOCAB, (BATCH, SEQ)))


def numbers(*shape: int) -> dt.Tensor:
    return dt.tensor(np.random.default_rng(1).normal(size=shape))


def whole(t: dt.Tensor) -> np.ndarray:
    return (t.full_tensor() if isinstance(t, DTensor) else t).detach().numpy()


def assert_same_grads(m: nn.Module, reference: nn.Module) -> None:
    theirs = dict(reference.named_parameters())
    for name, p in m.named_parameters():
        SUMS.equal(whole(p.grad), theirs[name].grad.numpy(), err_msg=name)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("hidden", [16, 6])
def test_an_mlp_equals_one_process(ranks: int, hidden: int) -> None:
    """Also where the hidden features do not divide."""

    def body(mesh):
        reference, m = made(MLP, hidden), made(MLP, hidden)
        if mesh.get_rank():
            for p in m.parameters():
                p.data.fill_(7.0)  # rank 0's values win
        parallelize_module(m, mesh, {"w1": ColwiseParallel(), "w2": RowwiseParallel()})
        x = numbers(5, DIM)
        out, expected = m(x), reference(x)
        assert type(out) is dt.Tensor
        SUMS.equal(whole(out), whole(expected))
        (out**2).sum().backward()
        (expected**2).sum().backward()
        assert m.w1.weight.placements == (Shard(0),) and m.w2.weight.placements == (Shard(1),)
        assert m.w1.weight.grad.placements == (Shard(0),)
        assert_same_grads(m, reference)

    on_ranks(ranks, body)


PLAIN = {
    "attention.w[qkv]": ColwiseParallel, "attention.wo": RowwiseParallel,
    "mlp.w1": ColwiseParallel, "mlp.w2": RowwiseParallel,
}  # fmt: skip


def sequence_plan() -> dict:
    """A block that takes and gives pieces of sequences (Korthikanti et al.)."""
    return {
        "norm1": SequenceParallel(), "norm2": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
        ),
        "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.w1": ColwiseParallel(),
        "mlp.w2": RowwiseParallel(output_layouts=Shard(1)),
    }  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_block_equals_one_process(ranks: int) -> None:
    def body(mesh):
        reference, m = made(Block), made(Block)
        parallelize_module(m, mesh, {k: style() for k, style in PLAIN.items()})
        x, y = numbers(BATCH, SEQ, DIM).requires_grad_(), numbers(BATCH, SEQ, DIM).requires_grad_()
        (m(x) ** 2).sum().backward()
        (reference(y) ** 2).sum().backward()
        assert_same_grads(m, reference)
        SUMS.equal(x.grad.numpy(), y.grad.numpy())

    on_ranks(ranks, body)


def test_heads_that_do_not_divide_are_told() -> None:
    def body(mesh):
        m = made(Block)
        m.attention.n_heads = HEADS
        with pytest.warns(UserWarning, match="4 heads of 2 features on 3 ranks: a rank gets 3"):
            parallelize_module(m, mesh, {"attention.wq": ColwiseParallel()})
        whole_heads = {f"attention.w{k}": ColwiseParallel(use_local_output=False) for k in "kv"}
        parallelize_module(m, mesh, whole_heads)
        with pytest.raises(ShapeError, match="cannot become"):
            m.attention.wq(numbers(BATCH, SEQ, DIM)).view(BATCH, SEQ, -1, 5)

    on_ranks(3, body)


def test_uneven_heads_work_on_sharded_tensors() -> None:
    """Where the piece of a rank is no whole number of heads, views see the whole."""

    def body(mesh):
        reference, m = made(Attention), made(Attention)
        plan = {w: ColwiseParallel(use_local_output=False) for w in ("wq", "wk", "wv")}
        parallelize_module(m, mesh, {**plan, "wo": RowwiseParallel()})
        x = numbers(BATCH, SEQ, DIM)
        out, expected = m(x), reference(x)
        SUMS.equal(whole(out), whole(expected))
        (out**2).sum().backward()
        (expected**2).sum().backward()
        assert_same_grads(m, reference)

    on_ranks(3, body)


def gpt_plan(sequence: bool, cut_classes: bool) -> dict:
    head = ColwiseParallel(
        input_layouts=Shard(1) if sequence else Replicate(),
        output_layouts=Shard(-1) if cut_classes else Replicate(),
        use_local_output=not cut_classes,
    )
    if not sequence:
        plan = {f"layers.*.{k}": style() for k, style in PLAIN.items()}
        return {"tokens": RowwiseParallel(input_layouts=Replicate()), **plan, "head": head}
    return {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "places": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
        **{f"layers.*.{k}": style for k, style in sequence_plan().items()},
        "norm": SequenceParallel(),
        "head": head,
    }


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("cut_classes", [False, True])
def test_a_gpt_equals_one_process(ranks: int, sequence: bool, cut_classes: bool) -> None:
    def body(mesh):
        reference, m = made(GPT), made(GPT)
        parallelize_module(m, mesh, gpt_plan(sequence, cut_classes))
        tokens, target = ids(), ids(1)
        for _ in range(2):
            out = m(tokens)
            expected = F.cross_entropy(reference(tokens).flatten(0, 1), target.flatten())
            expected.backward()
            if cut_classes:
                assert out.placements == (Shard(2),)
                with loss_parallel():
                    loss = F.cross_entropy(out.flatten(0, 1), target.flatten())
                    loss.backward()
            else:
                loss = F.cross_entropy(out.flatten(0, 1), target.flatten())
                loss.backward()
            SUMS.equal(whole(loss), whole(expected))
            assert_same_grads(m, reference)
            for model in (m, reference):
                dt.optim.SGD(model.parameters(), lr=0.1).step()
                model.zero_grad()
        assert m.tokens.weight.placements == (Shard(0),)

    on_ranks(ranks, body)


LOGITS = np.random.default_rng(0).normal(size=(6, 5))
TARGETS = np.array([1, 2, 3, 4, 2, 0])
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2, 5)


@pytest.mark.parametrize(
    ("shape", "placements"),
    [
        ((4,), [Shard(1)]),
        ((2, 2), [Shard(0), Shard(1)]),
        ((2, 2), [Shard(1), Shard(0)]),
        ((2, 2), [Replicate(), Shard(1)]),
    ],
)
def test_cross_entropy_over_cut_classes(shape: tuple, placements: list) -> None:
    """All options; one of the four ranks has no class at all."""

    def rank():
        dist.init_process_group()
        mesh = init_device_mesh("cpu", shape)
        for reduction, w, smoothing, ignore in itertools.product(
            ("mean", "sum", "none"), (None, WEIGHTS), (0.0, 0.2), (-100, 2)
        ):
            weight = None if w is None else dt.tensor(w)
            options = {"ignore_index": ignore, "reduction": reduction,
                       "label_smoothing": smoothing}  # fmt: skip
            a = dt.tensor(LOGITS).requires_grad_()
            expected = F.cross_entropy(a, dt.tensor(TARGETS), weight, **options)
            g = dt.tensor(np.linspace(1, 2, 6)) if reduction == "none" else dt.tensor(1.5)
            g = g.double()
            expected.backward(g)
            d = distribute_tensor(dt.tensor(LOGITS), mesh, placements).requires_grad_()
            with loss_parallel():
                found = F.cross_entropy(d, dt.tensor(TARGETS), weight, **options)
                found.backward(distribute_tensor(g, mesh, [Replicate()] * mesh.ndim))
            SUMS.equal(whole(found), whole(expected))
            assert d.grad.placements == tuple(placements)
            SUMS.equal(whole(d.grad), a.grad.numpy())
        with (
            loss_parallel(),
            pytest.raises(
                DimError, match=r"(Target 5|A target of other ranks' rows) is out of bounds"
            ),
        ):
            F.cross_entropy(d, dt.tensor(TARGETS + 1))
        dist.destroy_process_group()

    dist.simulate(rank, 4)


def test_cut_classes_are_never_put_together() -> None:
    def body(mesh):
        d = distribute_tensor(dt.tensor(LOGITS), mesh, [Shard(1)]).requires_grad_()
        group, sizes = mesh.get_group(), []
        plain_gather = type(group).all_gather

        def spy(self, *args, **kwargs):
            sizes.append(args)
            return plain_gather(self, *args, **kwargs)

        group.all_gather = spy.__get__(group)
        with loss_parallel():
            F.cross_entropy(d, dt.tensor(TARGETS)).backward()
        assert sizes == []

    on_ranks(2, body)


def test_prepared_inputs_and_outputs() -> None:
    class Two(nn.Module):
        def forward(self, x, flag, scale=None):
            assert flag == "as it is" and isinstance(x, DTensor) and isinstance(scale, DTensor)
            assert x.placements == (Replicate(),)
            return x * scale, flag

    def body(mesh):
        m = Two()
        style = PrepareModuleInputOutput(
            input_layouts=(Shard(0), None), desired_input_layouts=(Replicate(), None),
            input_kwarg_layouts={"scale": Replicate()},
            desired_input_kwarg_layouts={"scale": Replicate()},
            output_layouts=(Replicate(), None), desired_output_layouts=(Shard(0), None),
        )  # fmt: skip
        parallelize_module(m, mesh, style)
        x, scale = numbers(2, 3), dt.tensor(2.0).double()
        out, flag = m(x, "as it is", scale=scale)
        assert type(out) is dt.Tensor and flag == "as it is"
        np.testing.assert_array_equal(out.numpy(), 2 * x.numpy())
        with pytest.raises(PlacementError, match="should have same length"):
            m(x, scale=scale)
        local = PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate(),
                                   use_local_output=True)  # fmt: skip
        half = parallelize_module(nn.Identity(), mesh, local)
        assert tuple(half(x).shape) == (4, 3)
        out = PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=Replicate())
        assert tuple(parallelize_module(nn.Identity(), mesh, out)(x).shape) == (4, 3)
        assert "Shard(dim=0)" in repr(out)

    on_ranks(2, body)


def test_plans_say_what_they_cannot_do() -> None:
    def body(mesh):
        m = made(Block)
        with pytest.raises(NotImplementedError, match=r"only support nn.Linear and nn.Embedding"):
            parallelize_module(m, mesh, ColwiseParallel())
        with pytest.warns(UserWarning, match="'mlp.w9' could not be resolved"):
            parallelize_module(m, mesh, {"mlp.w9": ColwiseParallel()})
        with pytest.warns(UserWarning, match="No parallelize_plan"):
            parallelize_module(m, mesh)
        with pytest.raises(TypeError, match="Expect Union"):
            parallelize_module(m, mesh, 3)
        parallelize_module(m, mesh, {"mlp.w1": ColwiseParallel()})
        with pytest.raises(ConfigError, match="is a DTensor already"):
            parallelize_module(m, mesh, {"mlp.w1": RowwiseParallel()})
        with pytest.raises(AssertionError, match="should have same length"):
            PrepareModuleInput(input_layouts=(Shard(0),), desired_input_layouts=())
        with pytest.raises(ConfigError, match="a str was given where a Tensor is needed"):
            m.mlp.w1("x")
        with pytest.raises(ConfigError, match="called without a positional argument"):
            m.mlp.w1(input=dt.ones(2, DIM))
        row = parallelize_module(nn.Linear(DIM, 4), mesh, RowwiseParallel())
        with pytest.raises(ShapeError, match="needed is a piece with 4 of them, not 8"):
            row(dt.ones(2, DIM))  # the whole, where a piece is needed
        assert tuple(row(dt.ones(2, DIM // 2)).shape) == (2, 4)
        flat = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
        with pytest.raises(ConfigError, match=r"slice it, as in mesh\['tp'\]"):
            parallelize_module(m, flat, {})

    on_ranks(2, body)
