"""A recurrent network as one operation is the same as step by step, with all its derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.nn.modules import rnn

KINDS = ("LSTM", "GRU", "RNN", "relu")


def network(kind, **how):
    if kind == "relu":
        return dt.nn.RNN(5, 7, nonlinearity="relu", **how)
    return getattr(dt.nn, kind)(5, 7, **how)


def results(net, x, states):
    """Results, gradients (in two ways) and the gradients of those."""
    out, final = net(x, states)
    finals = final if isinstance(final, tuple) else (final,)
    loss = (out * out).sum() + sum(((f + 1) ** 2).sum() for f in finals)
    given = states if isinstance(states, tuple) else (states,)
    wanted = [x, *given, *net.parameters()]
    first = dt.autograd.grad(loss, wanted, create_graph=True)
    plain = dt.autograd.grad(loss, wanted, retain_graph=True)
    second = dt.autograd.grad(sum((g * g).sum() for g in first), wanted)
    return [t.detach().numpy() for t in (out, *finals, *first, *plain, *second)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_equals_single_steps(kind, bias, bidirectional, batch_first, monkeypatch):
    dt.manual_seed(3)
    net = network(
        kind, num_layers=2, bias=bias, bidirectional=bidirectional, batch_first=batch_first
    ).double()
    x = dt.randn(26, 25, 5, dtype=dt.float64, requires_grad=True)
    count = 4 if bidirectional else 2
    h, c = dt.randn(2, count, 26 if batch_first else 25, 7, dtype=dt.float64)
    states = (h.requires_grad_(), c.requires_grad_()) if kind == "LSTM" else h.requires_grad_()
    calls = []
    whole = rnn._at_once
    monkeypatch.setattr(rnn, "_at_once", lambda *a: calls.append(1) or whole(*a))
    at_once = results(net, x, states)
    assert len(calls) == count
    monkeypatch.setattr(rnn, "runs_at_once", lambda *a: False)
    for a, b in zip(at_once, results(net, x, states), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


@pytest.mark.parametrize("kind", KINDS)
def test_its_bits_repeat(kind):
    dt.manual_seed(4)
    net, x = network(kind), dt.randn(30, 6, 5)
    first, again = (net(x)[0].detach().numpy() for _ in range(2))
    assert first.tobytes() == again.tobytes()


def test_transforms_see_single_steps():
    net, x = dt.nn.LSTM(5, 7).double(), dt.randn(30, 2, 5, dtype=dt.float64)

    def f(x):
        return net(x)[0].sum()

    _, forward = dt.func.jvp(f, (x,), (dt.ones_like(x),))
    assert abs(float(forward) - float(dt.func.grad(f)(x).sum())) < 1e-9
    many = dt.func.vmap(f, in_dims=1)(x.unsqueeze(2))
    alone = dt.stack([f(x[:, k : k + 1]) for k in range(2)])
    np.testing.assert_allclose(many.detach().numpy(), alone.detach().numpy(), rtol=1e-12)


def test_gradients_of_single_results():
    net, x = dt.nn.LSTM(5, 7), dt.randn(30, 3, 5)
    for part in (lambda r: r[0][4], lambda r: r[1][0], lambda r: r[1][1]):
        net.zero_grad()
        part(net(x)).sum().backward()
        assert all(np.isfinite(p.grad.numpy()).all() for p in net.parameters())
    short = dt.nn.LSTM(5, 7)
    short.load_state_dict(net.state_dict())
    net.zero_grad()
    net(x)[1][1].sum().backward()
    state = None
    for t in range(30):
        _, state = short(x[t : t + 1], state)
    state[1].sum().backward()
    for a, b in zip(net.parameters(), short.parameters(), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_writing_to_the_result_leaves_the_gradients():
    net, x = dt.nn.GRU(5, 7), dt.randn(30, 3, 5)
    out, _ = net(x)
    out.sum().backward()
    wanted = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    out, _ = net(x)
    total = out.sum()
    out.detach().mul_(0)
    total.backward()
    for p, g in zip(net.parameters(), wanted, strict=True):
        assert p.grad.tolist() == g.tolist()
