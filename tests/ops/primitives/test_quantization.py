"""Primitives of quantization by numbers; ``tests/ops/test_table.py`` holds their rules."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import wrap
from disttrain.errors import DTypeError, ShapeError
from disttrain.ops.primitives import quantization as prim

GRID = {"low": -8, "high": 7, "dtype": np.dtype("i1")}


def whole(*values):
    return wrap(np.array(values, np.int32))


def test_ties_go_to_even_numbers_and_the_ends_hold():
    x = dt.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 100, -100, np.inf, -np.inf])
    found = prim.quantize(x, dt.tensor(1.0), whole(0)[0], **GRID)
    assert found.tolist() == [0, 2, 2, 0, -2, 7, -8, 7, -8] and found.dtype is dt.int8
    found = prim.quantize(dt.tensor([np.nan]), dt.tensor(1.0), whole(3)[0], **GRID)
    assert found.item() in range(-8, 8)


def test_zero_points_are_added_after_rounding_and_fractions_before():
    x, scale = dt.tensor([0.5, 1.5]), dt.tensor(1.0)
    assert prim.quantize(x, scale, whole(1)[0], **GRID).tolist() == [1, 3]
    assert prim.quantize(x, scale, dt.tensor(0.25), **GRID).tolist() == [1, 2]


def test_grids_of_channels_broadcast():
    x = dt.ones(2, 3)
    scale = dt.tensor([[0.5], [0.25]])
    q = prim.quantize(x, scale, whole(0), **GRID)
    assert q.tolist() == [[2] * 3, [4] * 3]
    assert prim.dequantize(q, scale, whole(0)).tolist() == x.tolist()


def test_the_gradient_goes_straight_through_what_is_within():
    x = dt.tensor([0.3, -0.3, 9.0, -9.0, 1.04], requires_grad=True)
    y = prim.fake_quantize(x, dt.tensor(0.1), whole(2)[0], low=-8, high=12)
    np.testing.assert_allclose(y.detach().numpy(), [0.3, -0.3, 1.0, -1.0, 1.0], atol=1e-6)
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 0, 0, 1]
    g = dt.autograd.grad(
        prim.fake_quantize(x, dt.tensor(0.1), whole(2)[0], low=-8, high=12).square().sum(),
        x, create_graph=True,
    )[0]  # fmt: skip
    assert g.requires_grad


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("kind", [dt.float32, dt.float64, dt.float16, dt.bfloat16])
def test_integer_weights_stand_for_their_numbers(rows, kind):
    rng = np.random.default_rng(rows)
    w, scale = rng.integers(-128, 128, (7, 20)).astype(np.int8), rng.uniform(0.01, 0.02, 7)
    x, b = dt.tensor(rng.normal(size=(rows, 20))).to(kind), dt.tensor(rng.normal(size=7)).to(kind)
    scale = dt.tensor(scale.astype("f4"))
    y = prim.weight_int8_linear(x, wrap(w), scale, b)
    true = x.double() @ (wrap(w).double() * scale.double().unsqueeze(1)).T + b.double()
    assert y.dtype is kind
    tol = {dt.float32: 1e-5, dt.float64: 1e-12}.get(kind, 3e-2)
    np.testing.assert_allclose(y.double().numpy(), true.numpy(), tol, tol * 5)


def test_dynamic_products_are_near_and_each_part_has_a_grid_of_its_own():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 50)).astype("f4")
    x[1] *= 1000
    w, scale = rng.integers(-128, 128, (9, 50)).astype(np.int8), np.full(9, 0.01, "f4")
    true = x @ (w * scale[:, None]).T
    for own, symmetric, low, high in ((1, False, 0, 255), (2, True, -127, 127)):
        y = prim.dynamic_linear(
            dt.tensor(x), wrap(w), wrap(scale), own=own, symmetric=symmetric, low=low, high=high
        ).numpy()
        for part in (0, 1):
            assert np.abs(y[part] - true[part]).max() < 0.02 * np.abs(true[part]).max()


def test_convolutions_are_exact():
    rng = np.random.default_rng(0)
    for groups, out, kernel, steps in (
        (1, 5, (3, 2), ((1, 2), (1, 0), (1, 2))), (4, 8, (3, 3), ((2, 1), (2, 1), (1, 1))),
        (2, 6, (1, 3), ((1, 1), (0, 1), (1, 1))),
    ):  # fmt: skip
        x = rng.integers(0, 256, (2, 4, 7, 8)).astype(np.uint8)
        w = rng.integers(-128, 128, (out, 4 // groups, *kernel)).astype(np.int8)
        stride, padding, dilation = steps
        how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        y = prim.integer_conv(
            wrap(x), wrap(w), dt.tensor(1.0), dt.ones(out), x_scale=1.0, x_zero=11, **how
        )
        true = dt.nn.functional.conv2d(dt.tensor(x.astype("f8") - 11), wrap(w.astype("f8")), **how)
        assert np.array_equal(y.numpy(), np.rint(true.numpy()).astype("f4") + 1)


def test_what_is_wrong_is_told():
    w, scale = wrap(np.zeros((2, 3), np.int8)), dt.tensor(1.0)
    with pytest.raises(ShapeError, match="last size 4 is not 3"):
        prim.weight_int8_linear(dt.ones(1, 4, device="meta"), w.to("meta"), scale.to("meta"), None)
    with pytest.raises(DTypeError):
        prim.quantize(dt.ones(2).long(), scale, whole(0)[0], **GRID)
