"""L-BFGS and its line search: minima are found, and the steps are those of PyTorch."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import optim
from disttrain.core import wrap
from disttrain.errors import ConfigError
from disttrain.optim.line_search import Point, cubic_minimum, strong_wolfe

SEARCHES = [None, "strong_wolfe"]


def rosenbrock(x, y):
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def minimize(steps, **args):
    p = wrap(np.array([-1.2, 1.0])).requires_grad_()
    opt = optim.LBFGS([p], **args)
    values = []

    def closure():
        opt.zero_grad()
        loss = rosenbrock(p[0], p[1])
        loss.backward()
        return loss

    for _ in range(steps):
        values.append(opt.step(closure).item())
    return p.array, values, opt


def test_the_valley_of_rosenbrock_is_walked_to_its_end():
    at, values, opt = minimize(4, line_search_fn="strong_wolfe", max_iter=30)
    np.testing.assert_allclose(at, [1, 1], atol=1e-4)
    assert values == sorted(values, reverse=True)
    state = opt.state_dict()["state"][0]
    assert state["n_iter"] > 10 and state["func_evals"] >= state["n_iter"]


def test_a_history_of_one_and_two_parameters():
    rng = np.random.default_rng(0)
    a = wrap(rng.standard_normal((3, 2)).astype("f4")).requires_grad_()
    b = wrap(rng.standard_normal(4).astype("f4")).requires_grad_()
    unused = wrap(np.ones(2, "f4")).requires_grad_()
    opt = optim.LBFGS([a, unused, b], history_size=1, max_iter=50)

    def closure():
        opt.zero_grad()
        loss = ((a - 1) ** 2).sum() + 3 * ((b + 2) ** 2).sum()
        loss.backward()
        return loss

    opt.step(closure)
    np.testing.assert_allclose(a.array, 1, atol=1e-4)
    np.testing.assert_allclose(b.array, -2, atol=1e-4)
    np.testing.assert_array_equal(unused.array, 1)


def test_at_the_minimum_nothing_moves():
    p = wrap(np.zeros(2)).requires_grad_()
    opt = optim.LBFGS([p])

    def closure():
        opt.zero_grad()
        (p * p).sum().backward()
        return 0.0

    assert opt.step(closure) == 0.0
    assert opt.state[p] == {"func_evals": 1, "n_iter": 0}


def test_an_unknown_line_search_is_refused():
    with pytest.raises(ConfigError, match="only 'strong_wolfe' is supported"):
        minimize(1, line_search_fn="armijo")


def test_the_cubic_through_two_points():
    def at(t):
        return Point(t, t**3 - 2 * t, 3 * t * t - 2)

    assert cubic_minimum(at(0.0), at(2.0), 0.0, 2.0) == pytest.approx((2 / 3) ** 0.5)
    assert cubic_minimum(at(2.0), at(0.0), 0.0, 0.5) == 0.5
    assert cubic_minimum(Point(0.0, 0.0, 1.0), Point(1.0, 1.0, 1.0), 0.0, 1.0) == 0.5


@pytest.mark.parametrize("t", [0.01, 1.0, 30.0])
def test_a_step_meets_both_wolfe_conditions(t):
    def ask(t):
        return Point(t, (t - 3) ** 4 - t, 4 * (t - 3) ** 3 - 1)

    start = ask(0.0)
    found, calls = strong_wolfe(ask, start, t, 1e-9, 25)
    assert found.value <= start.value + 1e-4 * found.t * start.slope
    assert abs(found.slope) <= -0.9 * start.slope and 1 <= calls <= 25


@pytest.mark.peer
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_steps_are_those_of_pytorch(search, dtype):
    import torch

    rng = np.random.default_rng(3)
    start = [rng.standard_normal(s) for s in ((3, 2), (4,))]
    scale = [rng.uniform(0.5, 3, s).astype("f4") for s in ((3, 2), (4,))]
    if dtype == "c8":
        start = [a + 1j * rng.standard_normal(a.shape) for a in start]
    args = {"lr": 0.5, "max_iter": 7, "history_size": 4, "line_search_fn": search}

    def run(kind, params, scales):
        opt = kind(params, **args)

        def closure():
            opt.zero_grad()
            loss = sum((s * ((p - 1).abs() ** 2 + (p - 1).abs() ** 4)).sum()
                       for p, s in zip(params, scales))  # fmt: skip
            loss.backward()
            return loss.detach()

        losses = [opt.step(closure).item() for _ in range(3)]
        return losses, opt

    mine = [wrap(a.astype(dtype)).requires_grad_() for a in start]
    theirs = [torch.from_numpy(a.astype(dtype)).requires_grad_() for a in start]
    a, opt = run(optim.LBFGS, mine, [wrap(s) for s in scale])
    b, other = run(torch.optim.LBFGS, theirs, [torch.from_numpy(s) for s in scale])
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype == "f8" else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(a, b, **tolerance)
    for p, q in zip(mine, theirs):
        np.testing.assert_allclose(p.array, q.detach().numpy(), **tolerance)
    assert opt.state[mine[0]].keys() - other.state[theirs[0]].keys() == set()
    for key in ("n_iter", "func_evals"):
        assert opt.state[mine[0]][key] == other.state[theirs[0]][key]


def test_parameters_on_several_devices_are_told(double):
    ps = [dt.ones(2, device=d, requires_grad=True) for d in ("cuda:0", "cuda:1")]
    opt = optim.LBFGS(ps)
    with pytest.raises(RuntimeError, match="parameter 0 is on cuda:0, parameter 1 on cuda:1"):
        opt.step(lambda: (ps[0] * 2).sum())


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_gradients_of_zero_move_nothing(search):
    p = dt.ones(2, requires_grad=True)
    chosen = optim.LBFGS([p], max_iter=5, tolerance_grad=-1, line_search_fn=search)

    def closure():
        chosen.zero_grad()
        loss = (p * 0).sum()
        loss.backward()
        return loss

    for _ in range(3):
        chosen.step(closure)
    assert p.tolist() == [1.0, 1.0]
