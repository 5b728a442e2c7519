"""Operations of XLA's vocabulary beside NumPy, with derivatives, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import func
from disttrain.arrays.general import NAMES
from disttrain.errors import OperandError, ShapeError

R = np.random.default_rng(0)
X = R.normal(size=(4, 5)).astype(np.float32)
I = R.integers(-9, 9, (4, 5)).astype(np.int32)


def of(name):
    return NAMES[name]


def t(a):
    return dt.tensor(a)


def moves_right(fn, *given):
    """Gradients of ``fn`` are those of differences."""
    given = [dt.tensor(g, dtype=dt.float64) for g in given]
    for k, x in enumerate(given):
        f = lambda v, k=k: (fn(*given[:k], v, *given[k + 1 :]) ** 2).sum()
        found = func.grad(f)(x)
        way = dt.tensor(R.normal(size=tuple(x.shape)))
        slope = (f(x + 1e-6 * way) - f(x - 1e-6 * way)) / 2e-6
        assert dt.allclose((found * way).sum(), slope, 1e-4, 1e-5)
        _, pushed = func.jvp(f, (x,), (way,))
        assert dt.allclose(pushed, slope, 1e-4, 1e-5)


@pytest.mark.parametrize("start", [(1, 2), (9, 9), (0, -9), (-1, 0)])
def test_slices_that_begin_where_tensors_say(start):
    first = [min(max(s + n if s < 0 else s, 0), n - k)
             for s, n, k in zip(start, X.shape, (2, 3), strict=True)]  # fmt: skip
    a, b = first
    assert (
        of("dynamic_slice")(t(X), start, (2, 3)).numpy().tolist()
        == X[a : a + 2, b : b + 3].tolist()
    )
    want = X.copy()
    want[a : a + 2, b : b + 3] = 7
    update = dt.full((2, 3), 7.0)
    assert of("dynamic_update_slice")(t(X), update, start).numpy().tolist() == want.tolist()
    moves_right(lambda x: of("dynamic_slice")(x, start, (2, 3)), X)
    moves_right(lambda x, u: of("dynamic_update_slice")(x, u, start), X, X[:2, :3])


def test_starts_that_differ_between_examples():
    starts = dt.tensor([[0, 0], [1, 2], [9, -9]])
    got = func.vmap(lambda s: of("dynamic_slice")(t(X), s, (2, 3)))(starts)
    each = dt.stack([of("dynamic_slice")(t(X), s, (2, 3)) for s in starts])
    assert dt.equal(got, each)
    put = lambda s: of("dynamic_update_slice")(t(X), dt.zeros(2, 3), s)
    assert dt.equal(func.vmap(put)(starts), dt.stack([put(s) for s in starts]))


def test_margins_of_any_sign():
    config = [(1, -1, 2), (-1, 2, 0)]
    wide = np.full((4 + 3 * 2, 5), 9, np.float32)
    wide[::3] = X
    want = np.pad(wide, [(1, 0), (0, 2)], constant_values=9)[:-1, 1:]
    assert of("pad")(t(X), dt.tensor(9.0), config).numpy().tolist() == want.tolist()
    moves_right(lambda x, v: of("pad")(x, v, config), X, np.float64(2))


def test_products_by_dimension_numbers():
    a, b = R.normal(size=(2, 4, 6)), R.normal(size=(2, 6, 3))
    for numbers, words in (
        ((((2,), (1,)), ((0,), (0,))), "bij,bjk->bik"),
        ((((0, 2), (0, 1)), ((), ())), "bij,bjk->ik"),
        ((((), ()), ((0,), (0,))), "bij,bkl->bijkl"),
    ):  # fmt: skip
        got = of("dot_general")(t(a), t(b), numbers).numpy()
        assert np.allclose(got, np.einsum(words, a, b))
        moves_right(lambda x, y, n=numbers: of("dot_general")(x, y, n), a, b)


def test_convolutions_with_gaps_and_groups():
    x, k = R.normal(size=(4, 6, 7, 2)), R.normal(size=(2, 3, 2, 4))
    numbers = ("NHWC", "HWIO", "NHWC")
    conv = lambda a, b, **how: of("conv_general_dilated")(
        a, b, how.pop("window_strides", (1, 1)), how.pop("padding", "SAME"),
        dimension_numbers=numbers, **how,
    )  # fmt: skip
    own = dt.nn.functional.conv2d(t(x).permute(0, 3, 1, 2), t(k).permute(3, 2, 0, 1))
    assert dt.allclose(conv(t(x), t(k), padding="VALID"), own.permute(0, 2, 3, 1))
    assert tuple(conv(t(x), t(k), window_strides=(2, 3)).shape) == (4, 3, 3, 4)
    wide = np.zeros((4, 6, 13, 2))
    wide[:, :, ::2] = x
    gaps = conv(t(x), t(k), padding=[(0, 0), (1, 1)], lhs_dilation=(1, 2))
    assert dt.allclose(gaps, conv(t(wide), t(k), padding=[(0, 0), (1, 1)]))
    parts = conv(t(x), t(k), batch_group_count=2)
    each = [conv(t(x[2 * i : 2 * i + 2]), t(k[..., 2 * i : 2 * i + 2])) for i in range(2)]
    assert dt.allclose(parts, dt.cat(each, 3))
    moves_right(lambda a, b: conv(a, b, padding=[(1, -1), (0, 2)], rhs_dilation=(2, 1)), x[:1], k)
    back = of("conv_transpose")(t(x), t(k), (2, 2), "SAME")
    assert tuple(back.shape) == (4, 12, 14, 4)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_gathering_and_scattering(mode):
    at = np.array([[0, 2], [3, 1], [9, 9], [-1, 0]])
    rows = of("GatherDimensionNumbers")((1,), (0,), (0,))
    got = of("gather")(t(X), t(at[:, :1]), rows, (1, 5), mode=mode).numpy()
    want = X[np.clip(at[:, 0], 0, 3)]
    if mode == "fill":
        want[2:] = np.nan
    assert np.array_equal(got, want, equal_nan=True)
    cells = of("ScatterDimensionNumbers")((), (0, 1), (0, 1))
    updates = R.normal(size=4).astype(np.float32)
    got = of("scatter_add")(t(X), t(at), t(updates), cells, mode=mode).numpy()
    want = X.copy()
    for (i, j), u in zip(at, updates, strict=True):
        if mode == "clip" or (0 <= i < 4 and 0 <= j < 5):
            want[min(max(i, 0), 3), min(max(j, 0), 4)] += u
    assert np.allclose(got, want)
    moves_right(lambda x, u: of("scatter")(x, t(at[:2]), u, cells, mode=mode), X, updates[:2])


@pytest.mark.parametrize("name", ["add", "max", "min", "mul"])
def test_windows(name):
    combine, start = of(name), {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}[name]
    (got,) = of("reduce_window")(
        [t(X)], [dt.tensor(start)], lambda a, b: [combine(a[0], b[0])], (2, 3), (1, 2),
        [(1, 0), (0, 1)],
    )  # fmt: skip
    wide = np.pad(X, [(1, 0), (0, 1)], constant_values=start)
    views = np.lib.stride_tricks.sliding_window_view(wide, (2, 3))[:, ::2]
    fold = {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}[name]
    assert np.allclose(got.numpy(), fold(views, (-2, -1)))


def test_orders_by_several_keys():
    keys, values = I % 3, X
    got = [v.numpy() for v in of("sort")((t(keys), t(values)), dimension=1, num_keys=2)]
    order = np.lexsort((values, keys), axis=1)
    assert np.array_equal(got[0], np.take_along_axis(keys, order, 1))
    assert np.array_equal(got[1], np.take_along_axis(values, order, 1))
    best, at = of("top_k")(t(np.float32([1, np.nan, 3, 3, -np.inf])), 3)
    assert at.tolist() == [1, 2, 3] and best.tolist()[1:] == [3.0, 3.0]


def test_reductions_of_several_arrays_together():
    sums, products = of("reduce")(
        [t(X), t(I)], [dt.tensor(0.0), dt.tensor(1)],
        lambda a, b: [a[0] + b[0], a[1] * b[1]], (0,),
    )  # fmt: skip
    assert np.allclose(sums.numpy(), X.sum(0), atol=1e-6)
    assert np.array_equal(products.numpy(), I.prod(0))
    assert of("reduce_xor")(t(I), (1,)).tolist() == np.bitwise_xor.reduce(I, 1).tolist()


def test_bits():
    words = np.int32([0, 1, -1, 255, 1 << 30])
    assert of("clz")(t(words)).tolist() == [32, 31, 0, 24, 1]
    assert of("population_count")(t(words)).tolist() == [0, 1, 32, 8, 1]
    bits = of("bitcast_convert_type")(t(X), np.int32)
    assert np.array_equal(bits.numpy(), X.view(np.int32))
    halves = of("bitcast_convert_type")(t(X), np.int16)
    assert np.array_equal(halves.numpy(), X.view(np.int16).reshape(4, 5, 2))
    assert dt.equal(of("bitcast_convert_type")(halves, np.float32), t(X))
    few = of("reduce_precision")(t(np.float32([1.1, 70000.0, 1e-9, -3.3])), 5, 10).numpy()
    assert np.array_equal(few, np.float32(np.float16([1.1, np.inf, 0, -3.3])))


def test_whole_numbers_divide_toward_zero():
    a, b = np.int32([7, -7, 7, -7, 3]), np.int32([2, 2, -2, -2, 0])
    assert of("div")(t(a), t(b)).tolist() == [3, -3, -3, 3, -1]
    assert of("rem")(t(a), t(b)).tolist() == [1, -1, 1, -1, 3]
    assert of("shift_right_logical")(t(a), t(np.int32([1] * 5))).tolist()[1] == 2147483644


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: of("add")(t(X), t(I)), "requires arguments to have the same dtypes"),
        (lambda: of("add")(t(X), t(X[:, :2])), "incompatible shapes for broadcasting"),
        (lambda: of("add")(t(X), t(X[0])), "same number of dimensions"),
        (lambda: of("sin")(t(I)), "sin does not accept dtype int32"),
        (lambda: of("concatenate")([t(X), t(X[:, :2])], 0), "Cannot concatenate arrays"),
        (lambda: of("dot_general")(t(X), t(X), (((1,), (0,)), ((), ()))), "same shape"),
        (lambda: of("reshape")(t(X), (3, 7)), "total size must be unchanged"),
        (lambda: of("broadcast_in_dim")(t(X), (4, 6), (0, 1)), "must either be 1"),
        (lambda: of("slice")(t(X), (0, 0), (9, 5)), "less than or equal to operand shape"),
        (lambda: of("transpose")(t(X), (0, 0)), "isn't a permutation"),
    ],
)
def test_what_does_not_go_together(call, message):
    with pytest.raises(OperandError, match=message) as found:
        call()
    assert isinstance(found.value, TypeError) and isinstance(found.value, ShapeError)


@pytest.mark.parametrize(
    "call",
    [
        lambda: of("top_k")(t(X), 9), lambda: of("cumsum")(t(X), 2), lambda: of("sort")(t(X), 5),
        lambda: of("pad")(t(X), dt.tensor(0.0), [(0, 0, -1), (0, 0, 0)]),
        lambda: of("squeeze")(t(X), (0,)), lambda: of("reduce_sum")(t(X), (0, 0)),
        lambda: of("conv_general_dilated")(t(X[None]), t(X[None]), (1,), [1]),
    ],
)  # fmt: skip
def test_wrong_numbers(call):
    with pytest.raises(ShapeError):
        call()
