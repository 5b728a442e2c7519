"""Special functions at points whose values are known, and formulas against what they stand for.
Derivatives and other rules are in ``test_table``."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import AutogradError, ConfigError, DTypeError, ShapeError

GAMMA = 0.5772156649015329  # Euler's constant


def f64(*values):
    return dt.tensor(values, dtype=dt.float64)


KNOWN = {
    "lgamma": (dt.lgamma, {1: 0, 2: 0, 0.5: math.log(math.pi) / 2, 10: math.log(362880),
                           0: math.inf}),
    "digamma": (dt.digamma, {1: -GAMMA, 2: 1 - GAMMA, 0.5: -GAMMA - 2 * math.log(2),
                             -0.5: 2 - GAMMA - 2 * math.log(2), 0: -math.inf}),
    "trigamma": (lambda x: dt.polygamma(1, x), {1: math.pi**2 / 6, 0.5: math.pi**2 / 2}),
    "erfc": (dt.erfc, {0: 1, 10: 2.088487583762545e-45, -10: 2}),
    "erfinv": (dt.erfinv, {0: 0, 1: math.inf, -1: -math.inf, math.erf(0.5): 0.5,
                           math.erf(-1.5): -1.5}),
    "i0": (dt.i0, {0: 1, 1: 1.2660658777520084, -1: 1.2660658777520084}),
    "sinc": (dt.sinc, {0: 1, 0.5: 2 / math.pi, 1: 0}),
    "logit": (dt.logit, {0.5: 0, 0.25: -math.log(3)}),
    "frac": (dt.frac, {1.5: 0.5, -1.5: -0.5}), "fix": (dt.fix, {1.5: 1, -1.5: -1}),
    "deg2rad": (dt.deg2rad, {180: math.pi}), "rad2deg": (dt.rad2deg, {math.pi: 180}),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_known_values(name):
    fn, points = KNOWN[name]
    found = fn(f64(*points)).tolist()
    assert found == pytest.approx([float(v) for v in points.values()], rel=1e-12, abs=1e-15)


def test_functions_of_two():
    assert dt.igamma(f64(1, 2), f64(3, 0)).tolist() == pytest.approx([1 - math.exp(-3), 0])
    assert dt.igammac(f64(1), f64(3)).item() == pytest.approx(math.exp(-3))
    assert dt.copysign(f64(1, -2), f64(-0.0, 3)).tolist() == [-1, 2]
    assert dt.hypot(f64(3), f64(4)).item() == 5
    assert dt.heaviside(f64(-1, 0, 2), f64(0.5)).tolist() == [0, 0.5, 1]
    assert dt.nextafter(f64(1), f64(2)).item() == math.nextafter(1, 2)
    assert dt.ldexp(f64(3), dt.tensor([4])).tolist() == [48]
    assert dt.gcd(dt.tensor([12]), dt.tensor([18])).item() == 6
    assert dt.lcm(dt.tensor([4]), dt.tensor([6])).item() == 12
    assert dt.float_power(dt.tensor([2]), 0.5).dtype is dt.float64
    assert dt.mvlgamma(f64(3), 2).item() == pytest.approx(
        math.log(math.pi) / 2 + math.lgamma(3) + math.lgamma(2.5)
    )


def test_whole_numbers_become_floating():
    assert dt.digamma(dt.tensor([1])).dtype is dt.float32
    assert dt.deg2rad(dt.tensor([180])).item() == pytest.approx(math.pi)


def test_the_derivative_that_is_not_known_is_refused():
    a = f64(2).requires_grad_()
    with pytest.raises((AutogradError, NotImplementedError), match="igamma"):
        dt.igamma(a, f64(1)).sum().backward()
    x = f64(1.5).requires_grad_()
    dt.igamma(f64(2), x).sum().backward()
    assert x.grad.item() == pytest.approx(1.5 * math.exp(-1.5))


def test_products_added():
    m, v = dt.arange(6.0).reshape(2, 3), dt.arange(3.0)
    assert dt.addmv(dt.ones(2), m, v, beta=2, alpha=3).tolist() == [17, 44]
    assert dt.addr(dt.zeros(2, 3), dt.arange(2.0), v).tolist() == [[0, 0, 0], [0, 1, 2]]
    b = dt.stack([m, m])
    assert dt.addbmm(dt.zeros(2, 2), b, b.mT, beta=0).tolist() == [[10, 28], [28, 100]]
    assert dt.baddbmm(dt.ones(2, 2, 2), b, b.mT)[1].tolist() == [[6, 15], [15, 51]]


def test_places():
    x = dt.zeros(2, 2)
    assert dt.put(x, dt.tensor([3, -4]), dt.tensor([5.0, 6.0])).tolist() == [[6, 0], [0, 5]]
    twice = dt.put(x, dt.tensor([1, 1]), dt.tensor([5.0, 6.0]), accumulate=True)
    assert twice.tolist() == [[0, 11], [0, 0]]
    source = dt.tensor([[1.0, 2.0], [3.0, 8.0]])
    index = dt.tensor([1, 1])
    assert dt.index_reduce(x + 2, 0, index, source, "prod").tolist() == [[2, 2], [6, 32]]
    largest = dt.index_reduce(x + 2, 0, index, source, "amax", include_self=False)
    assert largest.tolist() == [[2, 2], [3, 8]]
    with pytest.raises(DTypeError, match="equal"):
        dt.put(x, dt.tensor([0]), dt.tensor([1]))
    with pytest.raises(ShapeError, match="same number"):
        dt.put(x, dt.tensor([0]), dt.ones(2))
    with pytest.raises(ConfigError, match="reduce"):
        dt.index_reduce(x, 0, index, source, "sum")


def test_renorm():
    x = dt.tensor([[3.0, 4.0], [0.3, 0.4]])
    assert dt.renorm(x, 2, 0, 1.0).norm(dim=1).tolist() == pytest.approx([1, 0.5], rel=1e-5)


def test_diagonals_are_filled():
    x = dt.zeros(5, 2)
    assert x.clone().fill_diagonal_(1.0).sum().item() == 2
    assert x.clone().fill_diagonal_(1.0, wrap=True).nonzero().tolist() == [
        [0, 0], [1, 1], [3, 0], [4, 1]
    ]  # fmt: skip
    assert dt.zeros(3, 3, 3).fill_diagonal_(1.0).nonzero()[:, 0].tolist() == [0, 1, 2]
    with pytest.raises(ShapeError, match="dimensions"):
        dt.zeros(3).fill_diagonal_(1.0)


def test_scattered_copies():
    x, r = dt.zeros(2, 3), dt.tensor([1.0, 2.0])
    x.requires_grad_(), r.requires_grad_()
    for out, at in (
        (dt.select_scatter(x, r, 1, 2), [[0, 2], [1, 2]]),
        (dt.diagonal_scatter(x, r), [[0, 0], [1, 1]]),
        (dt.slice_scatter(x, r[:, None], 1, 1, 2), [[0, 1], [1, 1]]),
        (dt.as_strided_scatter(x, r, (2,), (4,), 1), [[0, 1], [1, 2]]),
    ):
        assert out.nonzero().tolist() == at
        gx, gr = dt.autograd.grad(out.sum(), (x, r))
        assert gx.sum().item() == 4 and gr.tolist() == [1, 1]


def test_turns_and_diagonals():
    m = dt.arange(4.0).reshape(2, 2)
    assert m.rot90().tolist() == [[1, 3], [0, 2]] and m.rot90(-1).tolist() == [[2, 0], [3, 1]]
    assert m.rot90(2).tolist() == [[3, 2], [1, 0]]
    turns = np.array(5)
    assert m.rot90(turns).tolist() == m.rot90(1).tolist() and turns == 5
    assert m.roll(np.int8(1), 0).tolist() == m.roll(dt.tensor(1), 0).tolist() == [[2, 3], [0, 1]]
    assert dt.diag_embed(dt.tensor([1.0, 2.0]), 1)[:2].tolist() == [[0, 1, 0], [0, 0, 2]]
    assert dt.diagflat(dt.tensor([[1.0], [2.0]])).tolist() == [[1, 0], [0, 2]]
    assert dt.ones(2, 3).sum_to_size(1, 3).tolist() == [[2, 2, 2]]
    assert dt.atleast_2d(dt.tensor(1.0)).shape == (1, 1)
    with pytest.raises(ShapeError, match="equal"):
        dt.hsplit(dt.zeros(2, 3), 2)
    with pytest.raises(ShapeError, match="maximum size"):
        dt.zeros(3).unfold(0, 4, 1)
    with pytest.raises(ShapeError, match="storage has"):
        dt.zeros(3).as_strided((4,), (1,))


@pytest.mark.parametrize("name", ["addbmm", "baddbmm", "addmv", "addmm"])
@pytest.mark.parametrize("wide", [0, 1, 2])
def test_sums_with_products_are_of_one_type(name, wide):
    shapes = {
        "addbmm": ((2, 2), (1, 2, 2), (1, 2, 2)), "baddbmm": ((1, 2, 2),) * 3,
        "addmv": ((2,), (2, 2), (2,)), "addmm": ((2, 2),) * 3,
    }  # fmt: skip
    given = [dt.ones(*shape) for shape in shapes[name]]
    getattr(dt, name)(*given)
    given[wide] = given[wide].double()
    with pytest.raises(RuntimeError, match=name):
        getattr(dt, name)(*given)


def test_norms_have_real_orders():
    with pytest.raises(RuntimeError, match="non-complex"):
        dt.linalg.vector_norm(dt.ones(3), 2j)
    with pytest.raises(TypeError, match="needed a number"):
        dt.linalg.vector_norm(dt.ones(3), "fro")
