"""Every primitive that has a rule, run by onnxruntime beside its own forward."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import disttrain as dt
from disttrain import func, nn, quantize
from disttrain.core import wrap
from disttrain.errors import ExportError
from disttrain.nn import functional as F
from disttrain.onnx.writing.entry import export
from disttrain.onnx.writing.rules import RULES
from disttrain.ops.declare import REGISTRY
from support.cases import table
from support.onnx_runs import operators, tensors, written

MAPPED = sorted(set(table.NAMES) & set(RULES) - {"as_strided", "view_write"})
# Primitives for whose operators onnxruntime has no kernel of the type that they are tried with.
FIRST_ALONE = ("attention", "cross_entropy")  # whose other results are for backward


def given(name: str, args: tuple) -> list:
    """Arguments of types that runtimes have kernels for."""
    kept = []
    for a in args:
        if isinstance(a, np.ndarray) and a.dtype == np.float64:
            a = a.astype(np.float32)
        elif isinstance(a, np.floating):
            a = np.float32(a)
        if name.startswith(("bitwise", "left_", "right_")) and isinstance(a, np.ndarray):
            a = np.abs(a * 5).astype(np.int64)
        elif name.startswith("logical") and isinstance(a, np.ndarray):
            a = a > 0
        kept.append(a)
    return kept


def held(params: dict) -> dict:
    """Parameters without float64."""
    return {
        k: np.dtype(np.int32) if k == "dtype" and v == np.float64 else v for k, v in params.items()
    }


def program(name: str, args: list, params: dict) -> tuple:
    """(a function of the tensors among ``args``, these)."""
    prim = REGISTRY[name]
    slots = [isinstance(a, np.ndarray) for a in args]

    def fn(*xs: Any) -> Any:
        rest = iter(xs)
        out = prim(*[next(rest) if s else a for s, a in zip(slots, args)], **params)
        return out[0] if name in FIRST_ALONE else out

    return fn, tuple(wrap(np.ascontiguousarray(a)) for a, s in zip(args, slots) if s)


@pytest.mark.parametrize("name", MAPPED)
def test_a_primitive_computes_the_same(name):
    for args, params in table.samples(name):
        args = given(name, args)
        if any(np.asarray(a).dtype.kind == "c" for a in args if isinstance(a, np.ndarray)):
            continue
        fn, xs = program(name, args, held(params))
        if xs:
            written(fn, xs)


@pytest.mark.parametrize("opset", [17, 20, 27])
def test_older_and_newer_operator_sets(opset):
    for name in ("gelu", "gelu_tanh", "attention", "rms_norm", "group_norm", "cumprod", "mean",
                 "amax", "scatter", "layer_norm", "sum"):  # fmt: skip
        for args, params in table.samples(name):
            fn, xs = program(name, given(name, args), params)
            written(fn, xs, opset_version=opset)


def test_what_is_newer_than_the_operator_set_is_told():
    with pytest.raises(ExportError, match="fold needs opset_version=18 or newer"):
        export(nn.Fold((4, 4), (2, 2)), (dt.randn(1, 4, 9),), opset_version=17)


def test_numbers_of_other_types():
    x = dt.arange(12).reshape(3, 4)
    written(
        lambda x: (x // 5, x % 3, x * 2 - 1, x.sum(0), x > 3, x.float().mean(), x.amax(1)), (x,)
    )
    flags = x % 2 == 0
    written(lambda a: (a & (a ^ True), a | ~a, a.any(1), a.all(), a.sum(0), a.float()), (flags,))
    written(lambda a: a * 2 + 1, (dt.randn(3).half(),))
    written(lambda a: a * 2 + a.sum(), (dt.randn(3).double(),))
    written(lambda a: (a + 1).to(dt.float32), (dt.arange(4).to(dt.int32),))


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "float16"])
def test_operators_that_runtimes_have_for_other_types(kind):
    x = (dt.arange(12).reshape(3, 4) % 5).to(getattr(dt, kind))
    at = dt.tensor([0, 1])

    def fn(x):
        y = dt.maximum(x, x.flip(0)), dt.where(x > 1, x, x * 0), x.clamp(1, 2), x.argmax(1)
        return *y, dt.relu(x), x**3, dt.tril(x), F.pad(x, (1, 1)), x.sort(1)[0], x.amax(0), x.sum()

    written(fn, (x,), tol=1e-2 if kind == "float16" else 1e-5)
    written(lambda x: x.index_add(0, at, x[:2]), (x,))
    if kind != "float16":
        written(lambda x: (x @ x.t(), x << 1, x & 3, x // 2), (x,))


@pytest.mark.parametrize("low, high", [(0, 127), (-64, 63), (0, 15), (0, 255), (-300, 300)])
def test_grids_of_fewer_bits_in_layers_that_runtimes_join(low, high):
    def fn(x):
        x = quantize.fake_quantize_per_tensor_affine(x, 0.1, 5, low, high)
        w = quantize.fake_quantize_per_tensor_affine(weight, 0.05, 0, -128, 127)
        y = dt.relu(x @ w)
        return quantize.fake_quantize_per_tensor_affine(y, 0.2, 3, low, high).reshape(-1)

    weight = dt.randn(8, 4)
    written(fn, (dt.randn(5, 8) * 5,))


def test_numbers_of_no_dimension_and_empty_ones():
    written(lambda a: (a * 2, a.sum(), a.reshape(1)), (dt.tensor(1.5),))
    written(lambda a: (a.sum(0), a * 2), (dt.zeros(0, 3),))
    written(lambda a: a + dt.tensor([1.0, 2.0]), (dt.randn(2),))


# --- complex numbers ----------------------------------------------------------------------------
def test_complex_numbers_at_the_ends_of_a_model_are_told():
    x = dt.randn(4)
    for fn, given in ((dt.fft.fft, x), (dt.abs, dt.fft.fft(x))):
        with pytest.raises(ExportError, match="complex64, which operators of ONNX do not take"):
            export(fn, (given,))
    with pytest.raises(ExportError, match=r"sin .*no counterpart in ONNX for complex numbers"):
        export(lambda x: dt.sin(dt.fft.fft(x)).abs(), (x,))


@pytest.mark.parametrize("opset", [17, 20, 23])
def test_fourier_transforms(opset):
    fft = dt.fft

    def fn(x):
        half = fft.rfft(x)
        return (
            half.abs(), fft.fft2(x).real, fft.ifft(x, norm="ortho").imag,
            fft.fft(x, norm="forward").abs(), fft.rfft2(x, norm="ortho").abs(),
            fft.irfft(half * fft.rfft(x + 1)), fft.irfft(half, 7), fft.irfft(half, 12),
            fft.irfft2(fft.rfft2(x)),
        )  # fmt: skip

    written(fn, (dt.randn(2, 8),), opset_version=opset)
    window = dt.hann_window(8)
    written(lambda x: dt.stft(x, 8, 4, window=window, return_complex=True).abs(),
            (dt.randn(2, 64),), opset_version=opset)  # fmt: skip


def test_arithmetic_of_complex_numbers():
    c, r = dt.view_as_complex, dt.view_as_real

    def fn(p):
        z = c(p)
        return (
            r(z * z + z / c(p + 3) - 2 * z + (1 + 2j) * z + 1j), r(z.conj() * z), z.abs(),
            dt.angle(z), r(z.exp()), r(-z / 2), r(z * p[..., 0]),
        )  # fmt: skip

    written(fn, (dt.randn(3, 4, 2),))

    def moved(p):
        z = c(p)
        both = dt.cat([z.t()[1:].flip(0), z.reshape(4, 3)], 0)
        return r(both[:, None].expand(-1, 2, -1).sum(1)), r(F.pad(z, (1, 0)))

    written(moved, (dt.randn(3, 4, 2),))


def test_complex_parameters():
    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(dt.randn(5, dtype=dt.complex64))

        def forward(self, x):
            return dt.fft.irfft(dt.fft.rfft(x) * self.w)

    written(Filter(), (dt.randn(2, 8),), (dt.randn(5, 8),), dynamic=({0: "n"},))


def test_places_in_order():
    edges, rows = dt.tensor([-1.0, 0.0, 1.0]), dt.randn(2, 4).sort(1)[0]
    written(lambda e, v: (dt.searchsorted(e, v), dt.searchsorted(e, v, right=True)),
            (edges, dt.randn(2, 5)))  # fmt: skip
    written(lambda e, v: (dt.searchsorted(e, v), dt.bucketize(v, edges)), (rows, dt.randn(2, 5)))


# --- writes ------------------------------------------------------------------------------------
def writes(x: dt.Tensor) -> dt.Tensor:
    y = x.clone()
    y[:, 1:3] = 2.0
    y[0] = x[1] * 3
    y[:, ::2] += 1
    y.t()[1] = 5
    y.view(-1)[3] = 9
    y.diagonal().mul_(2)
    y.relu_()
    return y


def test_writes_through_views():
    written(writes, (dt.randn(4, 6),))


def test_writes_where_sizes_may_change():
    def fn(x):
        y = x.clone()
        y[:, 1:] *= 2
        y[0] = 1.0
        y[-1, 0] = 7.0
        y[:, ::2] += 1
        return y

    written(fn, (dt.randn(4, 5),), (dt.randn(7, 5),), dynamic=({0: "n"},))


# --- what is made of sizes ---------------------------------------------------------------------
def test_tensors_made_of_sizes():
    def fn(x):
        n, k = x.shape
        return (
            dt.ones(n, 2) * k,
            dt.arange(n),
            dt.arange(1, 2 * k, 2),
            dt.zeros(k) + n,
            x.new_full((k,), n),
        )

    written(fn, (dt.randn(4, 5),), (dt.randn(3, 7),), dynamic=({0: "n", 1: "k"},))


# --- loops -------------------------------------------------------------------------------------
class Turns(nn.Module):
    """A recurrence with a layer in its body."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: dt.Tensor) -> Any:
        return func.scan(lambda c, v: (dt.tanh(self.layer(c) + v), c.sum()), x[0], x)


def test_loops_and_branches():
    made = written(lambda x: func.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,)),
                   (dt.rand(3),), (-dt.rand(3),))  # fmt: skip
    assert "If" in operators(made)
    made = written(lambda x: func.while_loop(lambda v: v.sum() < 10, lambda v: (v * 2 + 1,), (x,)),
                   (dt.rand(3),), (dt.rand(3) * 50,))  # fmt: skip
    assert operators(made)[-1] == "Loop"
    assert "Scan" in operators(written(Turns(), (dt.randn(4, 3),)))
    written(lambda x: func.scan(lambda c, v: (c + v, c * v), x[0], x, reverse=True),
            (dt.randn(4, 3),))  # fmt: skip
    written(lambda x: func.fori_loop(0, 5, lambda i, v: v * 2 + i, x), (dt.rand(3),))


def test_loops_in_branches_of_loops():
    w = dt.rand(3, 3)

    def turn(c, v):
        new = func.cond(v.sum() > 1.5, lambda a: a * 2, lambda a: dt.tanh(a @ w), (c,))
        return new + v, new.sum()

    written(lambda x: func.scan(turn, x[0], x), (dt.rand(5, 3),), (dt.rand(5, 3),))


# --- chances -----------------------------------------------------------------------------------
def test_draws_have_their_distributions():
    def fn(x):
        kept = F.dropout(x, 0.25, training=True)
        return (
            dt.rand_like(x),
            dt.randn_like(x),
            kept,
            dt.bernoulli(x * 0 + 0.3),
            dt.randint(2, 5, (4000,)),
        )

    x = dt.ones(4000)
    uniform, normal, kept, flags, whole = tensors(export(fn, (x,))(x))
    assert abs(uniform.mean() - 0.5) < 0.05 and 0 <= uniform.min() and uniform.max() < 1
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1
    assert abs((kept == 0).mean() - 0.25) < 0.05 and np.allclose(kept[kept != 0], 4 / 3)
    assert abs(flags.mean() - 0.3) < 0.05
    assert set(whole.tolist()) == {2, 3, 4} and whole.dtype == np.int64


def test_draws_of_classes():
    weights = dt.tensor([[0.0, 1.0, 3.0]]).expand(2, 3)
    (found,) = tensors(
        export(lambda x: dt.multinomial(x, 500, replacement=True), (weights,))(weights)
    )
    assert found.shape == (2, 500) and found.dtype == np.int64
    assert set(found.reshape(-1).tolist()) == {1, 2} and abs((found == 2).mean() - 0.75) < 0.1


def test_a_module_in_training_has_its_dropout():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    assert "Dropout" in operators(export(net, (dt.randn(2, 4),), train=None))
    assert "Dropout" not in operators(export(net, (dt.randn(2, 4),)))
    assert net.training


# --- recurrent layers --------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_is_one_operator(kind):
    net = getattr(nn, kind)(3, 4, batch_first=True)
    made = written(net, (dt.randn(2, 5, 3),), (dt.randn(3, 2, 3),), dynamic=({0: "n", 1: "t"},))
    assert operators(made).count(kind) == 1
    assert not {"Sigmoid", "Tanh", "Split", "MatMul", "Gemm"} & set(operators(made))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_both_directions_are_one_operator(kind):
    net = getattr(nn, kind)(3, 4, 2, batch_first=True, bidirectional=True)
    made = written(net, (dt.randn(2, 5, 3),), (dt.randn(3, 2, 3),), dynamic=({0: "n", 1: "t"},))
    assert operators(made).count(kind) == 2


def test_a_recurrent_layer_with_a_state():
    net = nn.LSTM(3, 4, 2, bidirectional=True)
    state = (dt.randn(4, 2, 4), dt.randn(4, 2, 4))
    written(lambda x, h, c: net(x, (h, c)), (dt.randn(5, 2, 3), *state))


def test_a_projected_lstm_is_told():
    with pytest.raises(ExportError, match="an LSTM with proj_size"):
        export(nn.LSTM(3, 4, proj_size=2), (dt.randn(5, 2, 3),))


def test_sessions_are_of_this_runtime():
    assert "CPUExecutionProvider" in onnxruntime.get_available_providers()
