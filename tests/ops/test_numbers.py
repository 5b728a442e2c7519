"""Numbers that narrow types, long sums, empty tensors and odd values must not spoil."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain.core.types.wide import add_up
from disttrain.errors import DTypeError, ShapeError
from support.numeric import check_gradients

HALVES = pytest.mark.parametrize("kind", [dt.float16, dt.bfloat16], ids=lambda k: k.name)
RNG = np.random.default_rng(0)
BIG = RNG.normal(size=(4, 300)) * 300
MANY = np.abs(RNG.normal(size=(4, 5000))) * 50
SMALL = RNG.normal(size=(6, 8))

# In float16 every one of them overflows, dies away or stops growing on the way to its result.
WIDE = {
    "mean": (MANY, lambda x: x.mean()),
    "mean dim": (MANY.T, lambda x: x.mean(0)),
    "sum": (MANY / 10, lambda x: x.sum(1)),
    "var": (BIG, lambda x: x.var(1)),
    "std": (BIG, lambda x: x.std()),
    "norm": (BIG, lambda x: x.norm()),
    "norm 3": (BIG, lambda x: x.norm(3, dim=1)),
    "linalg.norm": (BIG, lambda x: dt.linalg.norm(x)),
    "matrix norm": (BIG, lambda x: dt.linalg.norm(x / 10, 1)),
    "prod": (np.r_[np.full(20, 4.0), np.full(20, 0.25)], lambda x: x.prod()),
    "cumsum": (np.ones((2, 600)), lambda x: x.cumsum(1)),
    "cumprod": (1 + 0.01 * SMALL, lambda x: x.cumprod(1)),
    "logsumexp": (BIG / 30, lambda x: x.logsumexp(1)),
    "softmax": (BIG / 30, lambda x: x.softmax(1)),
    "mse_loss": (BIG / 3, lambda x: F.mse_loss(x, x * 0.5)),
    "l1_loss": (MANY, lambda x: F.l1_loss(x, x * 0)),
    "rms_norm": (BIG, lambda x: F.rms_norm(x, (300,))),
    "layer_norm": (BIG, lambda x: F.layer_norm(x, (300,))),
    "group_norm": (BIG.reshape(1, 4, 300) * 5, lambda x: F.group_norm(x, 4)),
    "instance_norm": (BIG.reshape(1, 4, 300) * 5, lambda x: F.instance_norm(x)),
    "batch_norm": (BIG.T * 5, lambda x: F.batch_norm(x, None, None, training=True)),
    "local_response_norm": (BIG.reshape(1, 4, 300), lambda x: F.local_response_norm(x, 3)),
    "normalize": (BIG, lambda x: F.normalize(x)),
    "cosine_similarity": (BIG, lambda x: F.cosine_similarity(x, x.flip(0))),
    "pairwise_distance": (BIG, lambda x: F.pairwise_distance(x, -x)),
    "avg_pool1d": (MANY.reshape(1, 4, 5000) * 10, lambda x: F.avg_pool1d(x, 50)),
    "adaptive_avg_pool1d": (MANY.reshape(1, 4, 5000) * 10, lambda x: F.adaptive_avg_pool1d(x, 3)),
    "interpolate area": (
        MANY.reshape(1, 4, 5000) * 10, lambda x: F.interpolate(x, size=3, mode="area")
    ),
    "matmul": (BIG / 30, lambda x: x @ x.T),
    "linear": (BIG / 30, lambda x: F.linear(x, x)),
    "einsum": (BIG / 30, lambda x: dt.einsum("ij,ij->i", x, x)),
    "dot": (MANY / 50, lambda x: dt.dot(x[0], x[1])),
    "addmm": (SMALL * 100, lambda x: dt.addmm(x[:, :6], x, x.T, alpha=0.01)),
    "addcmul": (BIG, lambda x: dt.addcmul(x, x, x, value=1e-3)),
    "addcdiv": (BIG, lambda x: dt.addcdiv(x, x, x, value=1e-3)),
    "lerp": (BIG * 50, lambda x: dt.lerp(x, -x, 0.3)),
    "round": (BIG, lambda x: dt.round(x, decimals=2)),
    "sigmoid": (np.linspace(-11, 11, 60), lambda x: dt.sigmoid(x)),
    "glu": (BIG / 60, lambda x: F.glu(x)),
    "mish": (SMALL * 3, lambda x: F.mish(x)),
    "elu": (SMALL * 3, lambda x: F.elu(x)),
    "bilinear": (SMALL, lambda x: F.bilinear(x, x, dt.ones(3, 8, 8, dtype=x.dtype))),
    "embedding": (SMALL, lambda x: F.embedding(dt.tensor([0, 5, 5]), x)),
}  # fmt: skip


@HALVES
@pytest.mark.parametrize("name", WIDE)
def test_half_types_are_computed_wide(name, kind):
    """As in float32, rounded once; the type stays."""
    values, run = WIDE[name]
    x = dt.tensor(values.tolist(), dtype=kind)
    got, want = run(x), run(x.float())
    assert got.dtype is kind
    wide = want.double().numpy()
    assert np.isfinite(wide).all()
    limit = 65504 if kind is dt.float16 else math.inf
    rounding = 2.0**-10 if kind is dt.float16 else 2.0**-7
    fits = np.abs(wide) < limit
    np.testing.assert_allclose(
        got.double().numpy()[fits], wide[fits], rtol=rounding, atol=2.0**-24
    )  # fmt: skip


@HALVES
def test_gradients_of_half_types_are_added_up_wide(kind):
    """What was broadcast, and what was read many times."""
    b = dt.zeros(3, dtype=kind, requires_grad=True)
    (b + dt.zeros(3000, 3, dtype=kind)).sum().backward()
    np.testing.assert_allclose(b.grad.float().numpy(), 3000, rtol=0.01)
    w = dt.zeros(2, 3, dtype=kind, requires_grad=True)
    F.embedding(dt.zeros(3000, dtype=dt.int64), w).sum().backward()
    np.testing.assert_allclose(w.grad.float().numpy()[0], 3000, rtol=0.01)


def test_long_sums_of_float32_keep_their_digits():
    n = 1 << 20
    a = np.full((n, 3), 0.1, np.float32)
    want = float(np.float32(0.1)) * n
    for x in (a, np.asfortranarray(a), a.T.copy().T):
        for dims in ((0,), (0, 1)):
            got = add_up(x, dims, False) / (3 if len(dims) == 2 else 1)
            np.testing.assert_allclose(got, want, rtol=6e-7)
    assert add_up(a[:1000].reshape(10, 100, 3), (0, 1), True).shape == (1, 1, 3)
    run = dt.from_numpy(a[:, 0].copy()).cumsum(0)
    np.testing.assert_allclose(run[-1].item(), want, rtol=1e-7)
    np.testing.assert_allclose(dt.from_numpy(a).mean(0).numpy(), 0.1, rtol=2e-6)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2000, 7), (7, 2000), (300, 5, 130)])
def test_sums_in_blocks_are_the_sums(shape):
    a = RNG.normal(size=shape).astype(np.float32)
    for dims in ((0,), (len(shape) - 1,), tuple(range(len(shape)))):
        for keep in (False, True):
            got, want = add_up(a, dims, keep), a.astype(np.float64).sum(dims, keepdims=keep)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


# --- empty tensors -----------------------------------------------------------------------------
EMPTY = {
    "mean": lambda x: x.mean(),
    "mse_loss": lambda x: F.mse_loss(x, dt.zeros(0, 3)),
    "l1_loss": lambda x: F.l1_loss(x, dt.zeros(0, 3)),
    "huber_loss": lambda x: F.huber_loss(x, dt.zeros(0, 3)),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, dt.zeros(0, 3)),
    "cross_entropy": lambda x: F.cross_entropy(x, dt.zeros(0, dtype=dt.int64)),
    "cross_entropy soft": lambda x: F.cross_entropy(x, dt.zeros(0, 3)),
    "nll_loss": lambda x: F.nll_loss(x, dt.zeros(0, dtype=dt.int64)),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x, dt.zeros(0, 3)),
    "bce logits": lambda x: F.binary_cross_entropy_with_logits(x, dt.zeros(0, 3)),
    "kl_div": lambda x: F.kl_div(x, dt.zeros(0, 3)),
    "var": lambda x: x.var(),
    "std": lambda x: x.std(),
    "median": lambda x: x.median(),
}


@pytest.mark.filterwarnings("ignore:var. degrees of freedom")
@pytest.mark.parametrize("name", EMPTY)
def test_means_of_nothing_are_nan(name):
    x = dt.zeros(0, 3, requires_grad=True)
    loss = EMPTY[name](x)
    assert math.isnan(loss.item())
    loss.backward()
    assert x.grad is None or tuple(x.grad.shape) == (0, 3)


def test_reductions_of_nothing_that_have_a_value():
    x = dt.zeros(0, 3, requires_grad=True)
    values = (x.sum(), x.prod(), x.norm(), x.sum(0).sum(), x.amax(1).sum(), x.mean(1).sum())
    assert [v.item() for v in values] == [0, 1, 0, 0, 0, 0]
    for v in values:
        v.backward()
    assert x.cumsum(0).shape == x.cumprod(0).shape == (0, 3)
    assert x.logsumexp(0).tolist() == [-math.inf] * 3
    for run in (x.amax, x.max, x.argmax, lambda: x.amax(0), lambda: x.max(0), lambda: x.argmin(0)):
        with pytest.raises(ShapeError):
            run()


# --- tensors without dimensions ----------------------------------------------------------------
def test_tensors_without_dimensions():
    x = dt.tensor(3.0, requires_grad=True)
    for run in (
        lambda: x.cumsum(0), lambda: x.cumprod(-1), lambda: x.sort().values,
        lambda: x.max(0).values, lambda: x.flip(()), lambda: x.median(0).values,
        lambda: x.sum(0), lambda: x.amax(0), lambda: x.prod(0), lambda: x.logsumexp(0),
    ):  # fmt: skip
        out = run()
        assert out.shape == () and out.item() == pytest.approx(3.0)
        (g,) = dt.autograd.grad(out, [x])
        assert g.shape == () and g.item() == pytest.approx(1.0)
    assert x.argmax(0, keepdim=True).shape == x.argmin(keepdim=True).shape == ()
    assert dt.tensor(3).cumsum(0).dtype is dt.int64
    assert dt.ones(2, 3).argmax(keepdim=True).shape == (1, 1)


# --- one by one --------------------------------------------------------------------------------
def test_median_and_quantile_find_nan():
    x = dt.tensor([[1.0, math.nan, 3.0], [3.0, 1.0, 2.0]])
    assert math.isnan(x.median().item())
    values, places = x.median(1)
    assert math.isnan(values[0].item()) and values[1].item() == 2
    assert places.tolist() == [1, 2]
    assert math.isnan(dt.quantile(x, 0.5).item())
    assert dt.quantile(x[1], dt.tensor([0.0, 0.25, 1.0])).tolist() == [1, 1.5, 3]
    assert dt.quantile(x[1], 0.3, interpolation="nearest").item() == 2
    assert dt.quantile(x, 0.5, keepdim=True).shape == (1, 1)


A = np.array([[1.0, 2.0, -1.0], [3.0, -4.0, 0.5]])
ORDERS = [1, -1, 2, -2, math.inf, -math.inf, "nuc", "fro", None]


@pytest.mark.parametrize("order", ORDERS)
def test_norms_of_matrices(order):
    got = dt.linalg.norm(dt.from_numpy(A), order)
    np.testing.assert_allclose(got.numpy(), np.linalg.norm(A, order), rtol=1e-12)
    check_gradients(lambda x: dt.linalg.norm(x, order), A, tol=1e-4)
    if order is not None:
        batch = dt.from_numpy(RNG.normal(size=(3, 2, 4)))
        rows = [np.linalg.norm(m, order) for m in batch.numpy().transpose(1, 0, 2)]
        got = dt.linalg.matrix_norm(batch, order, dim=(0, 2))
        np.testing.assert_allclose(got.numpy(), rows, rtol=1e-12)
        kept = dt.linalg.matrix_norm(batch, order, dim=(0, 2), keepdim=True)
        assert kept.shape == (1, 2, 1)


def test_inner_is_over_the_last_dimensions():
    a, b = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(5, 4))
    got = dt.inner(dt.from_numpy(a), dt.from_numpy(b))
    np.testing.assert_allclose(got.numpy(), np.inner(a, b), rtol=1e-12)
    assert dt.inner(dt.tensor(2.0), dt.ones(2, 2)).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(ShapeError, match="inner"):
        dt.inner(dt.ones(2, 3), dt.ones(3, 2))


def test_variance_of_complex_numbers_is_real():
    z = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
    x = dt.from_numpy(z)
    assert x.var().dtype is dt.float64
    np.testing.assert_allclose(x.var(0).numpy(), z.var(0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(x.std(1, correction=0).numpy(), z.std(1), rtol=1e-12)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert dt.ones(1).var().isnan() and dt.ones(2).var(correction=2).isnan()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
def test_scatter_reduce_has_gradients(reduce, own):
    a, src = RNG.normal(size=(3, 4)), RNG.normal(size=(2, 4))
    index = dt.tensor([[0, 1, 2, 0], [0, 2, 2, 1]])

    def run(x, y):
        return dt.scatter_reduce(x, 0, index, y, reduce, include_self=own)

    check_gradients(run, a, src)
    if reduce == "prod":
        src[0, 2] = 0.0
        check_gradients(run, a, src, second=False)
        src[1, 2] = 0.0
        check_gradients(run, a, src, second=False)
    whole = dt.tensor([1, 2, 3])
    got = dt.scatter_reduce(whole, 0, dt.tensor([0, 0, 1]), dt.tensor([5, 1, 2]), reduce,
                            include_self=own)  # fmt: skip
    assert got.dtype is dt.int64


def test_gradients_at_the_edges_of_their_functions():
    zero = dt.zeros(2, requires_grad=True)
    dt.atan2(zero, dt.zeros(2)).sum().backward()
    assert zero.grad.tolist() == [0, 0]
    b = dt.tensor([0.0, 2.0, -1.0, 3.0], requires_grad=True)
    (dt.tensor([0.0, 0.0, 0.0, 2.0]) ** b).sum().backward()
    np.testing.assert_allclose(b.grad.numpy(), [0, 0, -np.inf, 8 * np.log(2)], rtol=1e-6)
    b = dt.tensor([0.0, 2.0, -1.0], requires_grad=True)
    (0.0**b).sum().backward()
    assert b.grad.tolist() == [0, 0, -math.inf]
    a = dt.tensor([0.0, 0.0, 2.0], requires_grad=True)
    (a ** dt.tensor([0.0, 1.0, 3.0])).sum().backward()
    assert a.grad.tolist() == [0, 1, 12]
    low = dt.tensor([1.0, 2.0], requires_grad=True)
    x = dt.tensor([1.0, 3.0], requires_grad=True)
    dt.clamp(x, min=low).sum().backward()
    assert x.grad.tolist() == [1, 1] and low.grad.tolist() == [0, 0]


def test_weighted_losses():
    x, t, w = dt.tensor([2.0, 4.0]), dt.zeros(2), dt.tensor([1.0, 3.0])
    assert F.mse_loss(x, t, weight=w).item() == (4 + 48) / 4
    assert F.mse_loss(x, t, weight=w, reduction="sum").item() == 52
    assert F.l1_loss(x, t, weight=w).item() == 14 / 4
    assert F.huber_loss(x, t, weight=w).item() == (1.5 + 3 * 3.5) / 2
    with pytest.raises(ShapeError, match="weight"):
        F.mse_loss(x, t, weight=dt.ones(1))


def test_sums_in_an_asked_type():
    x = dt.tensor([200, 100], dtype=dt.uint8)
    assert x.sum(dtype=dt.uint8).item() == 44 and x.sum().item() == 300
    assert x.prod(dtype=dt.int16).item() == 20000
    assert x.cumsum(0, dtype=dt.uint8).tolist() == [200, 44]
    assert x.sum(dtype=dt.bool).item() is True
    with pytest.raises(DTypeError):
        x.cumsum(0, dtype=dt.bool)


def test_pad_crops_before_it_repeats():
    x = dt.arange(8.0).reshape(1, 1, 8)
    assert F.pad(x, (-2, 3), mode="circular").flatten().tolist() == [2, 3, 4, 5, 6, 7, 2, 3, 4]
    assert F.pad(x, (3, -2), mode="circular").flatten().tolist() == [3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert F.pad(x, (-1, -1), mode="reflect").flatten().tolist() == [1, 2, 3, 4, 5, 6]


def test_images_of_bytes_are_resized_in_bytes():
    x = dt.tensor([[[[10, 20], [30, 255]]]], dtype=dt.uint8)
    got = F.interpolate(x, size=(3, 3), mode="bilinear")
    assert got.dtype is dt.uint8
    assert got.tolist() == [[[[10, 15, 20], [20, 79, 138], [30, 143, 255]]]]
    sharp = F.interpolate(x, size=(3, 3), mode="bicubic")
    assert sharp.tolist() == [[[[9, 4, 1], [10, 79, 138], [10, 154, 255]]]]
    assert F.interpolate(x, scale_factor=2).dtype is dt.uint8


def test_shapes_out_of_range_are_errors():
    for run in (
        lambda: dt.tril(dt.ones(3)), lambda: dt.triu(dt.tensor(1.0)),
        lambda: dt.einsum("ii->i", dt.ones(2, 3)), lambda: dt.ones(3).unfold(0, 5, 1),
        lambda: dt.ones(3).unfold(0, 2, 0), lambda: dt.roll(dt.ones(2, 2), (1, 2), 0),
        lambda: dt.meshgrid(dt.ones(2, 2)), lambda: dt.trace(dt.ones(3)),
        lambda: F.margin_ranking_loss(dt.ones(2), dt.ones(2), dt.ones(2, 1)),
        lambda: dt.arange(5, 0), lambda: dt.linspace(0, 1, -1),
        lambda: dt.arange(float("nan")), lambda: dt.tensor(300, dtype=dt.uint8),
        lambda: dt.tensor(2**63), lambda: dt.full((2,), 2.0**40, dtype=dt.int32),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError)):
            run()
    assert dt.tensor(-1, dtype=dt.uint8).item() == 255


def test_numbers_of_new_tensors():
    assert dt.full((2,), 1j).dtype is dt.complex64
    assert dt.linspace(0, 1j, 3).tolist() == [0, 0.5j, 1j]
    assert dt.randperm(0).tolist() == [] and dt.randperm(0).dtype is dt.int64
    assert dt.arange(0, 0.3, 0.1).shape == (3,)
    assert dt.linspace(0, 10, 4, dtype=dt.int32).tolist() == [0, 3, 6, 10]
    z = dt.complex(dt.ones(2, 1, requires_grad=True), dt.zeros(3))
    assert z.shape == (2, 3) and z.requires_grad


@HALVES
def test_the_norm_of_gradients_has_their_type(kind):
    p = dt.ones(4, dtype=kind, requires_grad=True)
    p.grad = dt.full((4,), 200.0, dtype=kind)
    total = dt.nn.utils.clip_grad_norm_([p], 1.0)
    assert total.dtype is kind and total.item() == 400
    np.testing.assert_allclose(p.grad.float().numpy(), 0.5, rtol=0.01)


# --- odd values --------------------------------------------------------------------------------
INF, NAN = math.inf, math.nan
ODD = {
    "sign": (lambda x: dt.sign(x), [NAN, -INF, -0.0, 3.0], [0.0, -1.0, 0.0, 1.0]),
    "sgn": (lambda x: dt.sgn(x), [NAN, INF], [0.0, 1.0]),
    "remainder": (lambda x: x % 2, [-2.0, -3.0, INF, NAN, -0.0], [-0.0, 1.0, NAN, NAN, -0.0]),
    "remainder of infinity": (lambda x: x % INF, [3.0, -3.0], [3.0, INF]),
    "fmod": (lambda x: dt.fmod(x, 2), [-3.0, INF, -0.0], [-1.0, NAN, -0.0]),
    "floor_divide": (lambda x: x // 0.0, [1.0, -1.0, 0.0, NAN], [INF, -INF, NAN, NAN]),
    "heaviside": (lambda x: dt.heaviside(x, x * 0 + 0.5), [NAN, -1.0, 0.0, 2.0], [0, 0, 0.5, 1]),
    "maximum": (lambda x: dt.maximum(x, x * 0 + 1), [NAN, -INF, 2.0], [NAN, NAN, 2.0]),
    "clamp": (lambda x: x.clamp(-1, 1), [NAN, INF, -INF, 0.5], [NAN, 1.0, -1.0, 0.5]),
    "clamp nan": (lambda x: x.clamp(min=NAN), [1.0, 2.0], [NAN, NAN]),
    "clamp crossed": (lambda x: x.clamp(3, 2), [1.0, 5.0], [2.0, 2.0]),
    "xlogy": (lambda x: dt.xlogy(x, dt.zeros(3)), [0.0, 2.0, NAN], [0.0, -INF, NAN]),
    "pow": (lambda x: x**0.5, [INF, 0.0, -1.0], [INF, 0.0, NAN]),
    "pow zero": (lambda x: x**0, [NAN, INF, 0.0], [1.0, 1.0, 1.0]),
    "logsumexp": (lambda x: x.logsumexp(0), [INF, 1.0], INF),
    "logsumexp of none": (lambda x: x.logsumexp(0), [-INF, -INF], -INF),
    "softmax": (lambda x: x.softmax(0), [INF, 1.0], [NAN, NAN]),
    "log_softmax": (lambda x: x.log_softmax(0), [-INF, 0.0], [-INF, 0.0]),
    "amax": (lambda x: x.amax(), [1.0, NAN, INF], NAN),
    "argmax": (lambda x: x.argmax(), [1.0, NAN, INF], 1),
    "nansum": (lambda x: x.nansum(), [1.0, NAN, 2.0], 3.0),
    "sigmoid": (lambda x: dt.sigmoid(x), [-INF, INF, -80.0], [0.0, 1.0, 1.8048513878454153e-35]),
    "logaddexp": (lambda x: dt.logaddexp(x, x), [INF, -INF, 0.0], [INF, -INF, math.log(2)]),
    "round": (lambda x: dt.round(x), [0.5, 1.5, -2.5, INF], [0.0, 2.0, -2.0, INF]),
    "nan_to_num": (lambda x: dt.nan_to_num(x, 7.0, 1.0, -1.0), [NAN, INF, -INF], [7, 1, -1]),
    "signbit": (lambda x: dt.signbit(x).float(), [-0.0, 0.0, -1.0, INF], [1, 0, 1, 0]),
    "isposinf": (lambda x: x.isposinf().float(), [INF, -INF, NAN, 1.0], [1, 0, 0, 0]),
    "isneginf": (lambda x: x.isneginf().float(), [INF, -INF, NAN, 1.0], [0, 1, 0, 0]),
    "angle": (lambda x: dt.angle(x), [-1.0, 2.0, NAN, 0.0], [math.pi, 0.0, NAN, 0.0]),
    "fmax": (lambda x: dt.fmax(x, x * 0 + 1), [NAN, 0.0, 2.0], [NAN, 1.0, 2.0]),
    "fmax nan": (lambda x: dt.fmax(x, x.flip(0)), [NAN, 3.0], [3.0, 3.0]),
    "fmin nan": (lambda x: dt.fmin(x, x.flip(0)), [NAN, 3.0, 1.0], [1.0, 3.0, 1.0]),
    "logaddexp2": (lambda x: dt.logaddexp2(x, x), [1.0, -INF], [2.0, -INF]),
    "unique": (lambda x: dt.unique(x), [NAN, 1.0, NAN, 1.0], [1.0, NAN, NAN]),
    "sort": (lambda x: x.sort().values, [NAN, INF, -INF], [-INF, INF, NAN]),
    "lerp": (lambda x: dt.lerp(x, x * 0 + 2, 1.0), [5.0, 1e30], [2.0, 2.0]),
}  # fmt: skip


@pytest.mark.parametrize("kind", [np.float32, np.float64], ids=lambda k: k.__name__)
@pytest.mark.parametrize("name", ODD)
def test_odd_values(name, kind):
    """On whole arrays, on every second element of one, and with the sign of zero."""
    run, given, want = ODD[name]
    for x in (np.array(given, kind), np.repeat(np.array(given, kind), 2)[::2]):
        got = run(dt.from_numpy(x)).numpy()
        np.testing.assert_allclose(got, np.array(want), rtol=1e-6)
        if got.dtype == kind and not np.isnan(got).any():
            assert (np.signbit(got) == np.signbit(np.array(want, kind))).all()


def test_limits_of_integers():
    small = dt.tensor([-128, 127], dtype=dt.int8)
    assert (-small).tolist() == [-128, -127] and small.abs().tolist() == [-128, 127]
    assert (small + 1).tolist() == [-127, -128] and small.sum().item() == -1
    assert (2 ** dt.tensor([3, -1, 7], dtype=dt.int8)).dtype is dt.int8
    big = dt.tensor([2**63 - 1, -(2**63)])
    assert (big + 1).tolist() == [-(2**63), -(2**63) + 1]
    assert big.max().item() == 2**63 - 1 and big.sort().values.tolist() == [-(2**63), 2**63 - 1]
    with pytest.raises(RuntimeError):
        dt.tensor([1], dtype=dt.uint8) ** -1
    with pytest.raises(RuntimeError):
        dt.tensor([1], dtype=dt.uint8) ** 300
    assert dt.tensor([0.0, NAN, 0.5]).bool().tolist() == [False, True, True]
    assert dt.tensor([-1.5, 300.0]).to(dt.uint8).tolist() == [255, 44]


def test_gradients_of_products_of_complex_numbers():
    z = dt.tensor([1 + 2j, 0.5 - 1j], requires_grad=True)
    z.prod().backward(dt.tensor(1 - 1j))
    np.testing.assert_allclose(z.grad.numpy(), [1.5 + 0.5j, -1 - 3j], rtol=1e-6)
    w = dt.tensor([1 + 2j, 0j], requires_grad=True)
    w.prod().backward(dt.tensor(1 - 1j))
    np.testing.assert_allclose(w.grad.numpy(), [0, (1 - 1j) * (1 - 2j)], rtol=1e-6)


def test_margins_pass_the_gradient_where_they_are_just_met():
    a, b = dt.tensor([1.0, 2.0], requires_grad=True), dt.tensor([1.0, 3.0])
    F.margin_ranking_loss(a, b, dt.ones(2), reduction="sum").backward()
    assert a.grad.tolist() == [-1, -1]


def test_halves_have_no_singular_values():
    for order in (2, -2, "nuc"):
        with pytest.raises(DTypeError, match="matrix_norm"):
            dt.linalg.norm(dt.ones(2, 2, dtype=dt.half), order)
    with pytest.raises(RuntimeError, match="no elements"):
        dt.norm(dt.zeros(0), -1)
    with pytest.raises(DTypeError, match="overflow"):
        dt.full_like(dt.ones(2, dtype=dt.uint8), -0.5)
    x = dt.ones(4, 3, 0)
    assert F.linear(x, dt.ones(2, 0), dt.ones(2)).shape == (4, 3, 2)
