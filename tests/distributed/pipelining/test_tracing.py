"""Models that are no chain, cut by a trace of what they do: the pieces do what the model does."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn
from disttrain.core.backward.function import Function
from disttrain.core.random import manual_seed
from disttrain.distributed import pipelining as pp
from disttrain.errors import CaptureError, ConfigError
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=24, depth=2 * 4 * 4)

BEGINNING, END = pp.SplitPoint.BEGINNING, pp.SplitPoint.END


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, s, _ = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (t.view(b, s, 2, 4).transpose(1, 2) for t in parts)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.drop(self.out(out.transpose(1, 2).reshape(b, s, -1)))


class GPT(nn.Module):
    def __init__(self, marked: bool = False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(12, 8), nn.Embedding(6, 8)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(4)})
        self.head, self.marked = nn.Linear(8, 12), marked

    def forward(self, ids, scale=None):
        x = begin = self.tokens(ids) + self.places(dt.arange(ids.shape[1]))
        for i, layer in enumerate(self.layers.values()):
            if self.marked and i == 2:
                pp.pipe_split()
            x = layer(x)
        x = x + begin  # a skip connection over all stages
        return self.head(x if scale is None else x * scale)


def made(marked: bool = False) -> GPT:
    manual_seed(3)
    return GPT(marked).double().eval()


def ids(n: int = 2, seed: int = 0) -> dt.Tensor:
    return dt.tensor(np.random.default_rng(seed).integers(0, 12, (n, 6)))


def chained(pipe: pp.Pipe, *args, **kwargs):
    out = pipe.get_stage_module(0)(*args, **kwargs)
    for i in range(1, pipe.num_stages):
        out = pipe.get_stage_module(i)(*(out if isinstance(out, tuple) else (out,)))
    return out


def names(pipe: pp.Pipe) -> list[str]:
    parts = [pipe.get_stage_module(i) for i in range(pipe.num_stages)]
    return [n for p in parts for n, _ in p.named_parameters()]


def test_pieces_do_what_the_model_does() -> None:
    m = made()
    scale = dt.full((2, 1, 1), 2.0, dtype=dt.float64)
    spec = {"layers.1": BEGINNING, "layers.2": END}
    pipe = pp.pipeline(m, (ids(),), {"scale": scale}, split_spec=spec)
    assert pipe.num_stages == 3
    assert sorted(names(pipe)) == sorted(n for n, _ in m.named_parameters())
    assert "layers.1.qkv.weight" in dict(pipe.get_stage_module(1).named_parameters())
    x = ids(seed=1)
    found, expected = chained(pipe, x, scale=scale), m(x, scale=scale)
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    (found**2).sum().backward()
    grads = [p.grad.numpy().copy() for p in m.parameters()]
    m.zero_grad()
    (expected**2).sum().backward()
    for a, p in zip(grads, m.parameters(), strict=True):
        SUMS.equal(a, p.grad.numpy())


@pytest.mark.parametrize("name", ["1F1B", "InterleavedZeroBubble"])
def test_a_traced_model_trains_as_in_one_process(name: str) -> None:
    target = ids(4, seed=2)

    def loss(out, t):
        return F.cross_entropy(out.flatten(0, 1), t.flatten())

    def body():
        dist.init_process_group()
        m, rank = made(), dist.get_rank()
        spec = {"layers.2": BEGINNING}
        pipe = pp.pipeline(m, mb_args=(ids(),), split_spec=spec)
        stage = pipe.build_stage(rank, "cpu")
        kind = pp.get_schedule_class(name)
        single = issubclass(kind, pp.PipelineScheduleSingle)
        schedule = kind(stage if single else [stage], 2, loss)
        schedule.step(*([ids(4, seed=1)] * (rank == 0)), target=target)
        dist.destroy_process_group()
        return {n: p.grad.numpy() for n, p in stage.submod.named_parameters()}

    found = {k: g for r in dist.simulate(body, 2).results for k, g in r.items()}
    reference = made()
    loss(reference(ids(4, seed=1)), target).backward()
    assert sorted(found) == sorted(n for n, _ in reference.named_parameters())
    for n, p in reference.named_parameters():
        SUMS.equal(found[n], p.grad.numpy(), err_msg=n)


def test_a_model_says_itself_where_to_cut() -> None:
    m = made(marked=True)
    pipe = pp.pipeline(m, (ids(),))
    assert pipe.num_stages == 2
    np.testing.assert_array_equal(
        chained(pipe, ids(seed=4)).detach().numpy(), m(ids(seed=4)).detach().numpy()
    )
    with pytest.raises(ConfigError, match="nothing says where to cut"):
        pp.pipeline(made(), (ids(),))


def test_random_numbers_are_drawn_anew_and_buffers_follow() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(F.dropout(self.norm(self.a(x)), 0.5, training=self.training)) + 1

    manual_seed(0)
    m = Net().double()
    x = dt.randn(5, 4, dtype=dt.float64)
    before = m.norm.running_mean.numpy().copy()
    pipe = pp.pipeline(m, (x,), split_spec={"b": BEGINNING})
    np.testing.assert_array_equal(m.norm.running_mean.numpy(), before)  # tracing leaves no trace
    first, second = chained(pipe, x), chained(pipe, x)
    assert not dt.equal(first, second)
    assert int(m.norm.num_batches_tracked) == 2
    manual_seed(9)
    once = chained(pipe, x)
    manual_seed(9)
    np.testing.assert_array_equal(once.detach().numpy(), m(x).detach().numpy())


class Looks(nn.Module):
    def __init__(self, how) -> None:
        super().__init__()
        self.a, self.b, self.how = nn.Linear(4, 4), nn.Linear(4, 4), how

    def forward(self, x):
        return self.b(self.how(self.a(x)))


class Twice(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


REFUSED = {
    "looks at numbers of a tensor": lambda x: x * x.sum().item(),
    "looks at numbers": lambda x: x if x.sum() > 0 else -x,
    "the result of Twice": lambda x: Twice.apply(x) + 1,
    "gives other results": lambda x: x * float(np.abs(x.detach().array).sum()),
    "requires grad is used and is no parameter": lambda x: x * dt.ones(4).requires_grad_(),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_one_trace_does_not_show_is_refused(why: str) -> None:
    m = Looks(REFUSED[why])
    with pytest.raises(CaptureError, match=why):
        pp.pipeline(m, (dt.randn(3, 4),), split_spec={"b": BEGINNING})
