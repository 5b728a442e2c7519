"""Counts of steps on devices (``capturable=True``), on the double: the host's numbers, no waits;
steps in CUDA graphs go on counting."""

import pytest

import disttrain as dt
from disttrain import cuda, optim

pytestmark = pytest.mark.usefixtures("double")
ALGORITHMS = [
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"maximize": True}),
    ("NAdam", {"momentum_decay": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.9, 0.7)}),
    ("Adamax", {"weight_decay": 0.1}),
    ("ASGD", {"t0": 2.0, "lambd": 0.1}),
    ("Adadelta", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Rprop", {}),
]


def prepare(name, settings, where, dtype=dt.float32):
    weights = [(dt.arange(n, dtype=dtype) / 24).to(where).requires_grad_() for n in (24, 7)]
    weights.append(weights[0].detach()[:6].reshape(2, 3).t().requires_grad_())
    for w in weights:
        w.grad = (dt.arange(w.numel(), dtype=dtype) / 9 - 1).reshape(w.shape).to(where)
    return weights, getattr(optim, name)(weights, **settings)


@pytest.mark.parametrize(("name", "settings"), ALGORITHMS)
def test_equal_to_counts_on_the_host(double, name, settings):
    want, host = prepare(name, settings, "cpu")
    got, there = prepare(name, {**settings, "capturable": True}, "cuda")
    for k in range(9):
        host.step()
        double.counts.clear()
        there.step()
        assert not double.counts.waits and (k == 0 or not double.counts.transfers)
    for w, g in zip(want, got, strict=True):
        assert dt.allclose(g.cpu(), w, rtol=1e-5, atol=1e-6)
        assert there.state[g]["step"].is_cuda and there.state[g]["step"].item() == 9
    again = getattr(optim, name)(got, **settings)
    again.load_state_dict(there.state_dict())
    assert all(s["step"].is_cuda for s in again.state.values())
    again.step()
    host.step()
    assert dt.allclose(got[1].cpu(), want[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["AdamW", "NAdam", "SGD"])
def test_graphs_go_on_counting(double, name):
    rate = dt.tensor(0.1, device="cuda") if name == "AdamW" else 0.1
    settings = {} if name == "SGD" else {"capturable": True}
    got, optimizer = prepare(name, {"lr": rate, **settings}, "cuda")
    want, other = prepare(name, {"lr": 0.1}, "cpu")
    optimizer.step()
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        optimizer.step()
    for _ in range(3):
        g.replay()
    for _ in range(4):
        other.step()
    if name == "AdamW":  # a schedule writes into the tensor
        rate.fill_(0.01)
        other.param_groups[0]["lr"] = 0.01
        g.replay()
        other.step()
    for w, t in zip(want, got, strict=True):
        assert dt.allclose(t.cpu(), w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [dt.float64, dt.bfloat16])
def test_types_and_watched_steps(double, dtype):
    got, optimizer = prepare("Adam", {"capturable": True}, "cuda", dtype)
    want, other = prepare("Adam", {}, "cpu", dtype)
    for _ in range(2):
        with dt.autocast("cuda"):  # the step goes through the gate
            optimizer.step()
        other.step()
    for w, t in zip(want, got, strict=True):
        assert dt.allclose(t.cpu().float(), w.float(), rtol=1e-2 if dtype is dt.bfloat16 else 1e-9)
    assert optimizer.state[got[0]]["step"].item() == 2
