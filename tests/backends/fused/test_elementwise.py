"""Fused functions against formulas in double precision, and against PyTorch where installed."""

import math

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.family import Family
from disttrain.backends.fused import cross_entropy as ce
from disttrain.backends.fused import elementwise as fe
from disttrain.backends.fused import softmax as fs
from disttrain.backends.fused import updates as fu
from disttrain.backends.fused.normalization import norms as fn
from disttrain.backends.lang.interpret import storage
from disttrain.backends.lang.kernel import Array
from disttrain.backends.program import Program
from disttrain.errors import ConfigError, DimError, DTypeError, ShapeError

BF16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {"float32": 2e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}
SHAPES = [(1, 1), (3, 10), (4, 16), (2, 3, 70)]
TYPES = [np.dtype("float32"), np.dtype("float64"), np.dtype("float16"), BF16]
each = pytest.mark.parametrize("dtype", TYPES, ids=str)
shaped = pytest.mark.parametrize("shape", SHAPES, ids=str)


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(got, want, dtype, scale=1.0):
    assert got.dtype == dtype, got.dtype
    t = TOLERANCE[str(dtype)] * scale
    np.testing.assert_allclose(got.astype("f8"), want, rtol=t, atol=t)


def wide(*arrays):
    return [a.astype("f8") for a in arrays]


def numeric_gradient(f, x, g, eps=1e-6):
    """d sum(f(x) * g) / dx by central differences, in float64."""
    out = np.empty_like(x)
    for k in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[k] += eps
        down[k] -= eps
        out[k] = ((f(up) - f(down)) * g).sum() / (2 * eps)
    return out


def softmax_reference(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@each
@shaped
def test_softmax(shape, dtype):
    x, g = random(shape, dtype) * 3, random(shape, dtype, 1)
    x = x.astype(dtype)
    y = softmax_reference(x.astype("f8"))
    same(fs.softmax(x), y, dtype)
    same(fs.log_softmax(x), np.log(y), dtype, 4)
    narrow, (g8,) = y.astype(dtype), wide(g)
    y8, log8 = narrow.astype("f8"), np.log(y).astype(dtype).astype("f8")
    same(fs.softmax_backward(g, narrow), y8 * (g8 - (g8 * y8).sum(-1, keepdims=True)), dtype, 4)
    want = g8 - np.exp(log8) * g8.sum(-1, keepdims=True)
    same(fs.log_softmax_backward(g, np.log(y).astype(dtype)), want, dtype, 4)


def test_softmax_of_extreme_rows():
    x = np.array([[1e30, 1e30], [-np.inf, 0.0], [-1e30, 0.0], [np.nan, 0.0]], np.float32)
    got = fs.softmax(x)
    np.testing.assert_array_equal(got[:3], [[0.5, 0.5], [0, 1], [0, 1]])
    assert np.isnan(got[3]).all()


def test_softmax_into_given_memory_of_any_layout():
    x = random((6, 8), np.float32).T
    out = np.zeros((16, 6), np.float32)[::2]
    assert fs.softmax(x, out) is out
    np.testing.assert_allclose(out, softmax_reference(x), rtol=1e-6)
    y = x.copy()
    fs.softmax(y, y)
    np.testing.assert_allclose(y, softmax_reference(x), rtol=1e-6)


@each
@shaped
@pytest.mark.parametrize("affine", [(True, True), (True, False), (False, False)])
def test_layer_norm(shape, dtype, affine):
    x, c = random(shape, dtype), shape[-1]
    w = random(c, dtype, 1) if affine[0] else None
    b = random(c, dtype, 2) if affine[1] else None
    out, mean, rstd = fn.layer_norm(x, w, b, 1e-5)
    (x8,) = wide(x)
    m = x8.mean(-1)
    r = 1 / np.sqrt(x8.var(-1) + 1e-5)
    want = (x8 - m[..., None]) * r[..., None]
    want = want * (1 if w is None else w.astype("f8")) + (0 if b is None else b.astype("f8"))
    kind = np.dtype("f8" if dtype == np.float64 else "f4")
    assert mean.dtype == rstd.dtype == kind and mean.shape == shape[:-1]
    np.testing.assert_allclose(mean, m, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rstd, r, rtol=1e-5)
    same(out, want, dtype, 4)


@pytest.mark.parametrize("shape", [(3, 10), (2, 3, 17)])
@pytest.mark.parametrize("weighted", [True, False])
def test_norm_gradients_are_those_of_the_values(shape, weighted):
    x, g = random(shape, "f8"), random(shape, "f8", 1)
    w = random(shape[-1], "f8", 2) if weighted else None
    _, mean, rstd = fn.layer_norm(x, w, None, 1e-5)
    dx, dw, db = fn.layer_norm_backward(g, x, mean, rstd, w)
    want = numeric_gradient(lambda v: fn.layer_norm(v, w, None, 1e-5)[0], x, g)
    np.testing.assert_allclose(dx, want, rtol=1e-6, atol=1e-7)
    _, rstd = fn.rms_norm(x, w, 1e-5)
    dx, dw_rms = fn.rms_norm_backward(g, x, rstd, w)
    want = numeric_gradient(lambda v: fn.rms_norm(v, w, 1e-5)[0], x, g)
    np.testing.assert_allclose(dx, want, rtol=1e-6, atol=1e-7)
    if not weighted:
        assert dw is None and db is None and dw_rms is None
        return
    rows = tuple(range(x.ndim - 1))
    hat = (x - mean[..., None]) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(dw, (g * hat).sum(rows), rtol=1e-10)
    np.testing.assert_allclose(db, g.sum(rows), rtol=1e-10)
    np.testing.assert_allclose(dw_rms, (g * x * rstd[..., None]).sum(rows), rtol=1e-10)


@each
@shaped
def test_rms_norm(shape, dtype):
    x, w = random(shape, dtype), random(shape[-1], dtype, 1)
    out, rstd = fn.rms_norm(x, w, 1e-6)
    x8, w8 = wide(x, w)
    r = 1 / np.sqrt((x8 * x8).mean(-1) + 1e-6)
    np.testing.assert_allclose(rstd, r, rtol=1e-5)
    same(out, x8 * r[..., None] * w8, dtype, 4)


@pytest.mark.parametrize("rows", [1, 512, 513, 1500])
def test_norm_parameter_gradients_over_many_rows(rows):
    x, g, w = (random(s, np.float32, k) for k, s in enumerate([(rows, 5), (rows, 5), (5,)]))
    x[:] += 100
    _, mean, rstd = fn.layer_norm(x, w, w, 1e-5)
    dx, dw, db = fn.layer_norm_backward(g, x, mean, rstd, w)
    x8, g8 = wide(x, g)
    hat = (x8 - x8.mean(-1, keepdims=True)) / np.sqrt(x8.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(dw, (g8 * hat).sum(0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(db, g8.sum(0), rtol=1e-4, atol=1e-5)


def cross_entropy_reference(x, t, w, ignore, smoothing):
    logp = np.log(softmax_reference(x))
    w = np.ones(x.shape[1]) if w is None else w
    valid = t != ignore
    safe = np.where(valid, t, 0)
    own = -(w[safe] * logp[np.arange(len(t)), safe])
    spread = -(w * logp).sum(1) / x.shape[1]
    losses = np.where(valid, (1 - smoothing) * own + smoothing * spread, 0)
    return losses, (w[safe] * valid).sum()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@each
def test_cross_entropy(dtype, weighted, smoothing):
    x = random((7, 11), dtype)
    t = np.array([0, 10, -100, 3, 3, 9, 1])
    w = np.linspace(0.5, 2, 11).astype(dtype) if weighted else None
    w8 = None if w is None else w.astype("f8")
    losses, lse, total, count = ce.cross_entropy(x, t, w, -100, smoothing)
    want, weight = cross_entropy_reference(x.astype("f8"), t, w8, -100, smoothing)
    np.testing.assert_allclose(losses, want, rtol=1e-5, atol=1e-6)
    assert math.isclose(total, want.sum(), rel_tol=1e-5) and math.isclose(
        count, weight, rel_tol=1e-6
    )
    g = np.linspace(-1, 1, 7).astype(losses.dtype)

    def value(v):
        return cross_entropy_reference(v, t, w8, -100, smoothing)[0][:, None]

    want = numeric_gradient(value, x.astype("f8"), g[:, None])
    got = ce.cross_entropy_backward(g, x, t, lse, w, -100, smoothing)
    if dtype == np.float64:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)
    else:
        same(got, want, dtype, 4)
    one = ce.cross_entropy_backward(0.5, x, t, lse, w, -100, smoothing)
    many = ce.cross_entropy_backward(np.full_like(g, 0.5), x, t, lse, w, -100, smoothing)
    np.testing.assert_array_equal(one, many)


def test_cross_entropy_names_a_target_out_of_range():
    x = np.zeros((2, 3), np.float32)
    for wrong in (3, -1):
        with pytest.raises(DimError, match=rf"target {wrong} is out of range.*0\.\.2"):
            ce.cross_entropy(x, np.array([0, wrong]))
    losses, *_ = ce.cross_entropy(x, np.array([0, -1]), ignore_index=-1)
    assert losses[1] == 0


@each
def test_activations(dtype):
    x = np.concatenate([random(200, "f4") * 3, [0, -0.0, 30, -30, 9]]).astype(dtype)
    g = random(x.shape, dtype, 1)
    x8, g8 = wide(x, g)
    erf = np.array([math.erf(v / math.sqrt(2)) for v in x8])
    same(fe.gelu(x), 0.5 * x8 * (1 + erf), dtype)
    pdf = np.exp(-x8 * x8 / 2) / math.sqrt(2 * math.pi)
    same(fe.gelu_backward(g, x), g8 * (0.5 * (1 + erf) + x8 * pdf), dtype, 2)
    t = np.tanh(math.sqrt(2 / math.pi) * (x8 + 0.044715 * x8**3))
    same(fe.gelu(x, "tanh"), 0.5 * x8 * (1 + t), dtype)
    du = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x8**2)
    want = g8 * (0.5 * (1 + t) + 0.5 * x8 * (1 - t * t) * du)
    same(fe.gelu_backward(g, x, "tanh"), want, dtype, 3)
    s = 1 / (1 + np.exp(-x8))
    same(fe.silu(x), x8 * s, dtype, 2)
    same(fe.silu_backward(g, x), g8 * s * (1 + x8 * (1 - s)), dtype, 3)
    same(fe.erf(x), np.array([math.erf(v) for v in x8]), dtype)


@each
def test_gradients_from_results(dtype):
    y, g = random((4, 9), dtype), random((4, 9), dtype, 1)
    y8, g8 = wide(y, g)
    same(fe.relu_backward(g, y), g8 * (y8 > 0), dtype)
    same(fe.relu(y), np.maximum(y8, 0), dtype)
    one = fe.relu_backward(g[0, 0], y[0, 0])  # numpy's scalars are arrays of no axes
    assert one.shape == () and one == (g[0, 0] if y[0, 0] > 0 else 0)
    same(fe.tanh_backward(g, y), g8 * (1 - y8 * y8), dtype, 4)
    same(fe.sigmoid_backward(g, y), g8 * (y8 - y8 * y8), dtype, 4)


def test_any_function_becomes_one_pass():
    f = fe.fused("hypot", lambda a, b: (a * a + b * b) ** 0.5)
    a, b = random((5, 1), "f4"), random((3,), "f4", 1)
    got = f(a, b)
    assert got.shape == (5, 3)
    np.testing.assert_allclose(got, np.hypot(a, b), rtol=1e-6)
    out = np.zeros((3, 5), np.float32).T
    assert f(a, b, out=out) is out
    np.testing.assert_allclose(out, got)
    with pytest.raises(ValueError):
        f(a, random((2, 7), "f4"))


def test_gelu_keeps_its_digits_in_the_tail():
    x = np.array([-5.0, -6.0], np.float32)
    u = math.sqrt(2 / math.pi) * (x.astype("f8") + 0.044715 * x.astype("f8") ** 3)
    np.testing.assert_allclose(fe.gelu(x, "tanh"), x / (1 + np.exp(-2 * u)), rtol=1e-4)
    with pytest.raises(ConfigError, match="'none' or 'tanh'"):
        fe.gelu(x, "fast")


@each
def test_dropout_axpy_norm(dtype):
    x, y = random((5, 9), dtype), random((5, 9), dtype, 1)
    mask = np.random.default_rng(2).random((5, 9)) > 0.3
    x8, y8 = wide(x, y)
    same(fe.dropout(x, mask, 1.25), x8 * mask * 1.25, dtype)
    assert math.isclose(fe.norm_squared(x), (x8 * x8).sum(), rel_tol=1e-13)
    assert math.isclose(fe.norm_squared(x.T[::2]), (x8.T[::2] ** 2).sum(), rel_tol=1e-13)
    assert fe.axpy(-2, x, y) is y
    same(y, y8 - 2 * x8, dtype, 2)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 17])
@pytest.mark.parametrize("dtype", [*map(np.dtype, ("f4", "i8", "u1", "u4", "c8")), BF16], ids=str)
def test_sums_keep_their_order(n, dtype):
    arrays = [(random((3, 41), "f4", k) * 9).astype(dtype) for k in range(n)]
    want = arrays[0].copy()
    for a in arrays[1:]:
        want = want + a
    got = fe.sum_arrays(arrays)
    if dtype == BF16:
        np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), rtol=0.1, atol=0.5)
    else:
        np.testing.assert_array_equal(got, want)
    last = [a.copy() for a in arrays]
    np.testing.assert_array_equal(fe.sum_arrays(last, out=last[-1]), got)
    with pytest.raises(ShapeError, match="differ"):
        fe.sum_arrays([arrays[0], arrays[0][:2]])
    with pytest.raises(ShapeError, match="no arrays"):
        fe.sum_arrays([])


def families():
    """Every kernel of the fused functions, by name."""
    out = {}
    for module in (ce, fn, fs, fu, fe):
        for name, value in vars(module).items():
            several = isinstance(value, dict) and not name.startswith("__")
            for k, f in value.items() if several else [("", value)]:
                f = f.programs if isinstance(f, fu.Update) else f
                if isinstance(f, Family):
                    out[f"{name}[{k}]" if several else name] = f
    return out


@pytest.mark.parametrize("name", families())
@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("f8"), BF16], ids=str)
def test_numpy_computes_the_same_where_no_code_can_be_generated(name, dtype):
    kernel = families()[name].make(str(dtype))
    rng = np.random.default_rng(0)
    sizes = {"full": (6, 9), "row": (6,), "col": (9,), "one": (1,)}
    args = []
    for p in kernel.params:
        if not isinstance(p, Array):
            args.append(float(rng.uniform(0.1, 0.9)))
        elif p.dtype in ("int64", "bool"):
            args.append(rng.integers(0, 2, sizes[p.space]).astype(p.dtype))
        else:
            args.append(rng.uniform(0.1, 1, sizes[p.space]).astype(storage(p.dtype)))
    results = []
    for native in (True, False):
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        Program(kernel, native)(*mine)
        results.append([a.astype("f8") for a in mine if isinstance(a, np.ndarray)])
    for a, b in zip(*results):
        t = TOLERANCE[str(dtype)] * 10
        np.testing.assert_allclose(a, b, rtol=t, atol=t)


def test_types_without_a_kernel_are_refused():
    with pytest.raises(DTypeError, match="no kernel for arrays of complex64"):
        fs.softmax(np.ones(3, np.complex64))


@pytest.mark.peer
def test_values_are_those_of_pytorch():
    import torch
    import torch.nn.functional as F

    x = random((64, 300), "f4")
    t = np.random.default_rng(0).integers(0, 300, 64)
    tx, tt = torch.from_numpy(x), torch.from_numpy(t)
    w = random(300, "f4", 1)
    pairs = [
        (fs.softmax(x), torch.softmax(tx, -1)),
        (fs.log_softmax(x), torch.log_softmax(tx, -1)),
        (fe.gelu(x), F.gelu(tx)),
        (fe.gelu(x, "tanh"), F.gelu(tx, approximate="tanh")),
        (fe.silu(x), F.silu(tx)),
        (fn.layer_norm(x, w, w, 1e-5)[0], F.layer_norm(tx, (300,), *[torch.from_numpy(w)] * 2)),
        (ce.cross_entropy(x, t)[0], F.cross_entropy(tx, tt, reduction="none")),
    ]
    for got, want in pairs:
        np.testing.assert_allclose(got, want.numpy(), rtol=2e-6, atol=2e-6)
