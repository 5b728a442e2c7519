"""Collectives over the examples of a vmap, against sums and slices written out."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import func as F
from disttrain.errors import CaptureError, ConfigError, DimError, ShapeError, UnboundAxis
from disttrain.func import axes

X = dt.arange(4.0)
M = dt.arange(32.0).reshape(4, 4, 2)


def over(f, **options):
    return F.vmap(f, axis_name="i", **options)


def same(got, wanted):
    np.testing.assert_allclose(got.detach().numpy(), np.asarray(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        (lambda x: F.psum(x, "i"), [6.0] * 4),
        (lambda x: F.pmean(x, "i"), [1.5] * 4),
        (lambda x: F.pmax(x, "i") - F.pmin(x, "i"), [3.0] * 4),
        (lambda x: F.psum(1, "i") * x, [0.0, 4.0, 8.0, 12.0]),
        (lambda x: F.psum(dt.tensor(2.0), "i") + 0 * x, [8.0] * 4),
        (lambda x: F.axis_index("i") * x, [0.0, 1.0, 4.0, 9.0]),
        (lambda x: F.axis_size("i") * x, [0.0, 4.0, 8.0, 12.0]),
        (lambda x: F.ppermute(x, "i", [(0, 1), (1, 2)]), [0.0, 0.0, 1.0, 0.0]),
        (lambda x: axes.pshuffle(x, "i", [3, 0, 1, 2]), [3.0, 0.0, 1.0, 2.0]),
        (lambda x: axes.pbroadcast(x, "i", 2), [2.0] * 4),
        (lambda x: axes.pswapaxes(x + X, "i", 0), X[:, None] + X),
        (lambda x: F.all_gather(x, "i"), [X.numpy()] * 4),
        (lambda x: F.psum({"a": x, "b": [x]}, "i")["b"][0], [6.0] * 4),
        (lambda x: F.pvary(x, "i"), X.numpy()),
    ],
)
def test_of_numbers(f, wanted):
    same(over(f)(X), wanted)


def test_pieces():
    m = M.numpy()
    exchanged = np.swapaxes(m, 0, 1)  # [to, from, rest]
    same(over(lambda x: F.all_to_all(x, "i", 0, 0))(M), exchanged)
    same(over(lambda x: F.all_to_all(x, "i", 0, 1))(M), np.moveaxis(exchanged, 1, 2))
    tiled = over(lambda x: F.all_to_all(x, "i", 0, 1, tiled=True))(M)
    same(tiled, exchanged.reshape(4, 1, 8))
    same(over(lambda x: F.psum_scatter(x, "i"))(M), m.sum(0))
    same(over(lambda x: F.psum_scatter(x, "i", tiled=True))(M), m.sum(0)[:, None])
    same(over(lambda x: F.all_gather(x, "i", axis=1))(M), [np.moveaxis(m, 0, 1)] * 4)
    same(over(lambda x: F.all_gather(x, "i", axis=1, tiled=True))(M), [np.hstack(list(m))] * 4)


def test_values_that_are_one_for_all_are_taken_so():
    f = over(lambda x: F.psum(x, "i"), out_dims=None)
    assert f(X).shape == ()
    same(over(lambda x: F.psum_scatter(dt.ones(4), "i") + x)(X), X.numpy() + 4)
    same(
        over(lambda x: F.all_to_all(dt.arange(4.0), "i", 0, 0) + 0 * x)(X),
        [[i] * 4 for i in range(4)],
    )


def test_nested_axes_and_tuples_of_names():
    x = dt.arange(6.0).reshape(2, 3)
    two = lambda f: F.vmap(F.vmap(f, axis_name="j"), axis_name="i")
    n = x.numpy()
    same(two(lambda x: F.psum(x, ("i", "j")))(x), np.full((2, 3), n.sum()))
    same(two(lambda x: F.psum(x, "i") - F.psum(x, "j"))(x), n.sum(0)[None] - n.sum(1)[:, None])
    same(two(lambda x: F.axis_index(("i", "j")) - x)(x), np.zeros((2, 3)))
    same(two(lambda x: F.all_gather(x, ("i", "j")))(x), np.broadcast_to(n.ravel(), (2, 3, 6)))
    wide = dt.arange(36.0).reshape(2, 3, 6)
    same(two(lambda x: F.psum_scatter(x, ("i", "j")))(wide), wide.numpy().sum((0, 1)).reshape(2, 3))
    inner = F.vmap(F.vmap(lambda x: F.psum(x, "i"), axis_name="i"), axis_name="i")  # the innermost
    same(inner(x), np.repeat(n.sum(1)[:, None], 3, 1))


def test_derivatives_inside_and_outside():
    same(over(F.grad(lambda x: F.psum(x * x, "i")))(X), 8 * X.numpy())
    same(over(F.grad(lambda x: F.pmean(x * x, "i")))(X), 2 * X.numpy())
    total = lambda x: over(lambda x: F.psum(x.sin(), "i") * x)(x).sum()
    by_hand = lambda x: x.sin().sum() * x.sum()
    same(F.grad(total)(X), F.grad(by_hand)(X).numpy())
    same(F.hessian(total)(X), F.hessian(by_hand)(X).numpy())
    same(F.jvp(total, (X,), (X.cos(),))[1], F.jvp(by_hand, (X,), (X.cos(),))[1].numpy())


def test_captured_with_the_same_bits():
    f = over(lambda x: F.psum(x.sin(), "i") * F.ppermute(x, "i", [(0, 1), (2, 3)]))
    compiled = dt.compile(f)
    for x in (X, X + 1):
        assert compiled(x).tolist() == f(x).tolist()


def test_a_function_of_no_arguments_has_a_size_given():
    assert F.vmap(lambda: F.axis_index("i"), axis_name="i", axis_size=3)().tolist() == [0, 1, 2]
    f = F.vmap(lambda x: F.psum(x, "i"), in_dims=None, axis_name="i", axis_size=3)
    same(f(dt.tensor(2.0)), [6.0] * 3)
    with pytest.raises(ShapeError, match="same size"):
        F.vmap(lambda x: x, axis_name="i", axis_size=3)(X)


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda x: F.psum(x, "j"), UnboundAxis, r"unbound axis name: j .bound here: 'i'"),
        (lambda x: F.psum("no", "i"), ConfigError, "a str is given"),
        (lambda x: F.ppermute(x, "i", [(0, 1), (2, 1)]), ConfigError, "targets"),
        (lambda x: F.ppermute(x, "i", [(0, 7)]), ConfigError, "of 0 to 3"),
        (lambda x: F.all_to_all(x, "i", 1, 0), ShapeError, "size of the axis, 4"),
        (lambda x: F.all_to_all(x, "i", 5, 0), DimError, "dimension 5"),
        (lambda x: F.psum_scatter(x, "i", scatter_dimension=1, tiled=True), ShapeError, "multiple"),
        (lambda x: F.ppermute(x, ("i", "i"), [(0, 1)]), ConfigError, "needed is one"),
    ],
)
def test_errors(f, error, text):
    with pytest.raises(error, match=text):
        over(f)(M)


def test_outside_no_axis_is_bound():
    with pytest.raises(NameError, match="bound here: none"):
        F.psum(X, "i")
    with pytest.raises(ConfigError, match="chunk_size and axis_name"):
        over(lambda x: x, chunk_size=2)
    kept = []
    over(lambda x: kept.append(x) or x)(X)
    with pytest.raises(CaptureError, match="after the transform returned"):
        over(lambda x: F.psum(kept[0], "i"))(X)
