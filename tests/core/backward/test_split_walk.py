"""A backward in two parts gives what one backward gives, bit for bit, and runs nothing twice."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn
from disttrain.autograd import checkpoint
from disttrain.core.backward.function import Function
from disttrain.core.backward.split_walk import backward_inputs
from disttrain.core.random import manual_seed


class Twice(Function):
    """A program's own function of two inputs; counts its backwards."""

    calls = 0

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        Twice.calls += 1
        x, w = ctx.saved_tensors
        return g * w, g * x


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(core.wrap(np.linspace(0.5, 1.5, 6)))

    def forward(self, x):
        return Twice.apply(x, self.w * 2)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).double()

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


class Shared(nn.Module):
    """One weight used twice, a chain with nothing between two matrices, a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6).double()
        self.b = nn.Linear(6, 6, bias=False).double()

    def forward(self, x):
        return self.a(self.b(self.a(x))) + x + self.b.weight.sum() * 0.1


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm = nn.Linear(6, 18).double(), nn.LayerNorm(6).double()

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + F.scaled_dot_product_attention(q[None], k[None], v[None])[0]


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)).double(),
    "own function": Own,
    "checkpoint": Checkpointed,
    "shared": Shared,
    "attention": Attention,
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()).double(),
}


def leaf() -> core.Tensor:
    return core.wrap(np.random.default_rng(2).standard_normal((4, 6))).requires_grad_()


@pytest.mark.parametrize("name", MODELS)
def test_equals_one_backward(name: str) -> None:
    manual_seed(1)
    m = MODELS[name]()
    x = leaf()
    (m(x) ** 2).sum().backward()
    whole = [x.grad.numpy().copy()] + [p.grad.numpy().copy() for p in m.parameters()]
    m.zero_grad()
    calls, Twice.calls = Twice.calls, 0
    x = leaf()
    (found,), rest = backward_inputs([(m(x) ** 2).sum()], None, [x])
    assert all(p.grad is None for p in m.parameters())
    rest.run()
    rest.run()  # (nothing is left)
    halves = [found.numpy()] + [p.grad.numpy() for p in m.parameters()]
    for a, b in zip(whole, halves, strict=True):
        np.testing.assert_array_equal(a, b)
    assert Twice.calls == (1 if name == "own function" else 0)
    Twice.calls = calls


def test_hooks_run_once() -> None:
    manual_seed(1)
    m = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).double()
    seen: list[str] = []
    m[2].register_full_backward_hook(lambda mod, gi, go: seen.append("module"))
    m[0].weight.register_hook(lambda g: seen.append("weight"))
    m[2].bias.register_post_accumulate_grad_hook(lambda p: seen.append("bias"))
    x = leaf()
    h = m[0](x)
    h.register_hook(lambda g: seen.append("value"))
    (m[2](m[1](h))).sum()
    _, rest = backward_inputs([m[2](m[1](h)).sum()], None, [x])
    first = list(seen)
    rest.run()
    assert first == ["module", "value"]
    assert sorted(seen) == ["bias", "module", "value", "weight"]


def test_an_output_apart_from_the_inputs_and_an_unused_input() -> None:
    w = core.wrap(np.arange(3.0)).requires_grad_()
    x, unused = leaf(), leaf()
    (gx, none), rest = backward_inputs([x.sum(), (w * w).sum()], None, [x, unused])
    np.testing.assert_array_equal(gx.numpy(), np.ones((4, 6)))
    assert none is None and w.grad is None
    rest.run()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * np.arange(3.0))


def test_an_input_that_is_an_output() -> None:
    x = leaf()
    seed = core.wrap(np.full((4, 6), 3.0))
    (g,), rest = backward_inputs([x], [seed], [x])
    rest.run()
    np.testing.assert_array_equal(g.numpy(), seed.numpy())


def test_only_what_leads_to_inputs_runs_first() -> None:
    """The gradient of the weight costs nothing in the first part."""
    x, w = leaf(), core.wrap(np.ones((6, 5))).requires_grad_()
    ran: list[str] = []
    w2 = w * 1.0
    w2.register_hook(lambda g: ran.append("w"))
    _, rest = backward_inputs([(x @ w2).sum()], None, [x])
    assert ran == [] and len(rest.nodes) == 1
    rest.run()
    assert ran == ["w"] and w.grad is not None
