"""The ranks of a group as the examples of a batch: values, derivatives inside and outside, and
captures are those of a vmap over all ranks' values."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import func as F
from disttrain import tree
from disttrain.errors import ConfigError, LaunchError
from disttrain.func.vmap import Batch, run_batch
from support.simulated import on_ranks

N = 4
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 4, 2)).astype("f4")
W = rng.normal(size=(2, 3)).astype("f4")

PROGRAMS = {
    "psum": lambda w, x: F.psum((x @ w).sin(), "i").sum() * x.sum(),
    "pmean": lambda w, x: (F.pmean((x @ w).sin(), "i") * w[0]).sum(),
    "pmax": lambda w, x: (F.pmax(x @ w, "i") * x.sum()).sum(),
    "gather": lambda w, x: (F.all_gather(x @ w, "i", axis=1, tiled=True) * x[:1, :1]).cos().sum(),
    "permute": lambda w, x: (
        (
            F.ppermute(x @ w, "i", [(0, 1), (1, 3), (3, 0)]) * x[0, 0]
            + F.ppermute(w, "i", [(0, 1)])[0, 0]
        )
        .cos()
        .sum()
    ),
    "exchange": lambda w, x: (F.all_to_all(x @ w, "i", 0, 1).mT * x[:1, :1]).cos().sum(),
    "scatter": lambda w, x: (F.psum_scatter(x @ w, "i") * w[0]).cos().sum(),
    "one for all": lambda w, x: (
        (F.psum(w, "i") * x.sum()).sum() + F.psum_scatter(F.all_gather(w * w, "i"), "i").sum()
    ),
    "index": lambda w, x: (x * (F.axis_index("i") + 1)).sum() * w.sum() + F.psum(w.sum(), "i"),
    "scan": lambda w, x: (
        F.scan(
            lambda c, r: (c + F.psum(r.sin() @ w, "i").sum(), F.ppermute(r, "i", [(0, 1), (1, 0)])),
            w.sum(),
            x,
        )[0].sin()
        * x.sum()
    ),
    "cond": lambda w, x: F.cond(
        w.sum() > 0,
        lambda w, x: F.psum(x, "i").sum() * w.sum(),
        lambda w, x: F.psum(x * x, "i").sum() * w[0].sum() * x.sum(),
        (w, x),
    ),
    "apart": lambda w, x: w.sum() * 1.0,
}


def twice(f):
    return F.grad(lambda w, x: sum(g.square().sum() for g in F.grad(f, (0, 1))(w, x)), (0, 1))


def batch(f):
    return lambda w, x: F.vmap(f, in_dims=(None, 0))(w, dt.stack([x, x * 2]))


WAYS = {
    "value": lambda f: f,
    "grad": lambda f: F.grad(f, (0, 1)),
    "grad of grad": twice,
    "jvp": lambda f: lambda w, x: F.jvp(f, (w, x), (w.sin(), x.cos())),
    "vmap of grad": lambda f: batch(F.grad(f, (0, 1))),
    "grad of vmap": lambda f: F.grad(lambda w, x: batch(f)(w, x).sum(), (0, 1)),
}


def weighed(result, weight):
    return sum((o.sin() * weight(o)).sum() for o in tree.leaves(result))


def in_one(g, varying):
    """Values and gradients in one process."""

    def run(w, x):
        level = Batch(N, "error", "i", varying)
        return run_batch(level, g, [w, x], tuple, [None, 0], 0, {})

    def loss(w, x):
        ranks = dt.arange(1.0, N + 1)
        return weighed(run(w, x), lambda o: ranks.reshape(N, *[1] * (o.ndim - 1)))

    given = dt.tensor(W), dt.tensor(X)
    return [o.numpy() for o in tree.leaves(run(*given))], F.grad(loss, (0, 1))(*given)


def over_ranks(g, varying):
    def body():
        me = dist.get_rank()
        f = F.spread(g, "i", dist.group.WORLD, (False, True), varying=varying)
        given = dt.tensor(W), dt.tensor(X[me])
        outs = [o.numpy() for o in tree.leaves(f(*given))]
        again = [o.numpy() for o in tree.leaves(dt.compile(f)(*given))]
        assert all(np.array_equal(a, b) for a, b in zip(outs, again, strict=True))
        grads = F.grad(lambda w, x: weighed(f(w, x), lambda o: me + 1), (0, 1))(*given)
        return outs, [g.numpy() for g in grads]

    return on_ranks(body, N)


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_ranks_are_the_examples(way, varying):
    for f in PROGRAMS.values():
        g = WAYS[way](f)
        values, (of_w, of_x) = in_one(g, varying)
        ranks = over_ranks(g, varying)
        for i, wanted in enumerate(values):
            got = np.stack([outs[i] for outs, _ in ranks])
            np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
        scale = {"rtol": 1e-3, "atol": 1e-3 * max(1.0, float(of_x.abs().max()))}
        np.testing.assert_allclose([g[1] for _, g in ranks], of_x.numpy(), **scale)
        scale = {"rtol": 1e-3, "atol": 1e-3 * max(1.0, float(of_w.abs().max()))}
        for _, grads in ranks:
            np.testing.assert_allclose(grads[0], of_w.numpy(), **scale)


def test_a_varying_axis_sums_the_gradients_of_what_is_one_for_all():
    def f(w, x):
        return (w * x).sum()

    def body(varying):
        x = dt.tensor([1.0 + dist.get_rank()])
        g = F.spread(F.grad(f), "i", dist.group.WORLD, (False, True), not varying, varying=varying)
        return g(dt.tensor([3.0]), x).tolist()

    assert on_ranks(lambda: body(True), 3) == [[6.0]] * 3
    assert on_ranks(lambda: body(False), 3) == [[1.0], [2.0], [3.0]]


def test_results_said_to_be_one_for_all_must_be():
    def body(check):
        f = F.spread(lambda x: x, "i", dist.group.WORLD, True, False, check=check)
        return f(dt.ones(2)).tolist()

    with pytest.raises(LaunchError, match="each rank's own, and out_own says"):
        on_ranks(lambda: body(True))
    assert on_ranks(lambda: body(False)) == [[1.0, 1.0]] * 2


def test_forms_that_do_not_fit():
    dist.init_process_group()
    try:
        with pytest.raises(ConfigError, match="in_own="):
            F.spread(lambda x: x, "i", dist.group.WORLD, (True, True))(dt.ones(2))
        one = F.spread(lambda x: F.psum(x, "i"), "i", dist.group.WORLD)
        assert one(dt.ones(2)).tolist() == [1.0, 1.0]
    finally:
        dist.destroy_process_group()


def test_numbers_drawn_are_each_ranks_own():
    def body():
        dt.manual_seed(dist.get_rank())
        f = F.spread(lambda x: F.psum(dt.rand(2), "i") + 0 * x, "i", dist.group.WORLD)
        return f(dt.zeros(2)).tolist()

    one, other = on_ranks(body)
    assert one == other
