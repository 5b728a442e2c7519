"""Quantized tensors: what they have, and what they have not."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import disttrain as dt
from disttrain import quantize
from disttrain.errors import AutogradError, DTypeError
from disttrain.nn import functional as F
from disttrain.quantize import qint8, quint8


@pytest.fixture
def q():
    dt.manual_seed(0)
    return quantize.quantize_per_tensor(dt.randn(2, 3, 4, 6), 0.02, 100, quint8)


def rows():
    return quantize.quantize_per_channel(
        dt.ones(2, 3), dt.tensor([0.5, 0.25]), dt.tensor([0, 1]), 0, qint8
    )


def test_what_it_is(q):
    assert q.is_quantized and q.dtype is quint8 and q.shape == (2, 3, 4, 6) and q.ndim == 4
    assert (q.q_scale(), q.q_zero_point()) == (0.02, 100) and q.element_size() == 1
    assert q.nbytes == q.numel() == 144 and q.qscheme() == "per_tensor_affine"
    assert not q.requires_grad and "scale=0.02, zero_point=100" in repr(q)
    assert q.stride() == (72, 24, 6, 1) and q.stride(1) == 24 and q.is_contiguous()
    assert q.mT.stride() == (72, 24, 1, 6) and not q.mT.is_contiguous()
    assert dt.equal(q, q.clone()) and not dt.equal(q, q.relu())
    one = rows()
    assert one.qscheme() == "per_channel_affine" and one.q_per_channel_axis() == 0
    assert one.q_per_channel_scales().dtype is dt.float64
    assert one.q_per_channel_zero_points().tolist() == [0, 1] and "axis=0" in repr(one)


MOVES = {
    "reshape": lambda x: x.reshape(6, -1), "view": lambda x: x.view(2, -1),
    "flatten": lambda x: dt.flatten(x, 1), "permute": lambda x: x.permute(0, 2, 3, 1),
    "transpose": lambda x: x.transpose(1, 2), "index": lambda x: x[1, :, 1:3],
    "squeeze": lambda x: x[:1].squeeze(0), "unsqueeze": lambda x: x.unsqueeze(0),
    "expand": lambda x: x[:1].expand(3, 3, 4, 6), "relu": F.relu, "relu6": F.relu6,
    "max_pool": lambda x: F.max_pool2d(x, 2), "clamp": lambda x: x.clamp(-0.5, 0.5),
    "sort": lambda x: x.sort(-1)[0], "topk": lambda x: x.topk(2)[0],
    "nearest": lambda x: F.interpolate(x, scale_factor=2), "reflect": lambda x: F.pad(
        x, (1, 1, 1, 1), mode="reflect"
    ),
    "cat": lambda x: dt.cat([x, x], 1), "chunk": lambda x: x.chunk(3, 1)[1],
    "layer": dt.nn.Sequential(dt.nn.ReLU(), dt.nn.MaxPool2d(2), dt.nn.Flatten()).eval(),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_or_chooses_numbers_is_exact(q, name):
    got, want = MOVES[name](q), MOVES[name](q.dequantize())
    assert got.is_quantized and got.q_scale() == 0.02 and got.q_zero_point() == 100
    assert (got.dequantize() - want).abs().max().item() < 1e-6


@pytest.mark.parametrize(
    "fn",
    [lambda x: F.avg_pool2d(x, 2), lambda x: F.adaptive_avg_pool2d(x, 1), lambda x: x.mean(1),
     lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), F.gelu]
)  # fmt: skip
def test_means_are_rounded_to_the_same_grid(q, fn):
    got, want = fn(q), fn(q.dequantize())
    assert got.q_scale() == 0.02 and (got.dequantize() - want).abs().max().item() <= 0.0101


def test_functions_with_a_range_have_their_grid(q):
    assert dt.sigmoid(q).q_scale() == 1 / 256 and dt.tanh(q).q_zero_point() == 128
    signed = quantize.quantize_per_tensor(dt.zeros(1), 1.0, 0, qint8)
    assert dt.sigmoid(signed).dequantize().item() == 0.5


def test_writes(q):
    wanted = q.relu()
    for run in (dt.nn.ReLU(inplace=True), F.relu_, lambda x: x.relu_()):
        one = q.clone()
        assert run(one).equal(wanted) and one.equal(wanted)
    other = q.clone()
    other.copy_(dt.ones(2, 3, 4, 6))
    assert other.dequantize().equal(dt.ones(2, 3, 4, 6)) and not other.equal(q)
    with pytest.raises(DTypeError, match="different types or shapes"):
        other.copy_(wanted[:1])


def test_copies(q):
    for one in (copy.copy(q), copy.deepcopy(q), q.clone(), q.detach(), q.contiguous(), q.cpu()):
        assert one.equal(q) and type(one) is type(q)
    assert not q.equal(q.dequantize()) and not q.equal(rows())
    assert q.int_repr().data_ptr() != q.levels.data_ptr()


def test_files():
    for one in (rows(), quantize.quantize_per_tensor(dt.ones(2), 0.1, 3, quint8)):
        assert pickle.loads(pickle.dumps(one)).equal(one)
        file = io.BytesIO()
        dt.save({"one": one}, file)
        file.seek(0)
        assert dt.load(file, weights_only=False)["one"].equal(one)


def test_what_it_has_not(q):
    for run in (
        lambda: q + q,
        lambda: q @ q,
        lambda: F.linear(q, dt.ones(2, 6)),
        lambda: dt.exp(q),
    ):
        with pytest.raises(DTypeError, match=r"call dequantize\(\) first"):
            run()
    with pytest.raises(DTypeError, match="a grid for each channel"):
        rows().reshape(-1)
    with pytest.raises(DTypeError, match="q_scale: needed a tensor with one grid"):
        rows().q_scale()
    with pytest.raises(DTypeError, match="numpy"):
        q.numpy()
    with pytest.raises(AutogradError, match="FakeQuantize"):
        q.requires_grad_()
    assert (q > 0).dtype is dt.bool and q.max().item() == q.dequantize().max().item()
    assert q[0, 0, 0].tolist() == q.dequantize()[0, 0, 0].tolist()


def test_compiled_functions_have_the_same_bits(q):
    def fn(x):
        one = quantize.quantize_per_tensor(x, 0.1, 3, qint8)
        return F.max_pool2d(one.relu(), 2).flatten(1).dequantize()

    x = dt.randn(2, 3, 4, 6)
    run = dt.compile(fn)
    assert run(x).equal(fn(x)) and run(x).equal(fn(x))
