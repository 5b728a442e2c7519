"""Functions with statistics among their results agree with those of layers, and each other."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain.compat.torch.top import native as T


def test_norms_give_their_statistics():
    x = dt.rand(3, 4, 5)
    out, mean, rstd = T.native_layer_norm(x, [5], None, None, 1e-5)
    assert dt.equal(out, F.layer_norm(x, (5,))) and mean.shape == (3, 4, 1)
    assert dt.allclose((x - mean) * rstd, out, atol=1e-5)
    out, mean, rstd = T.native_group_norm(x, None, None, 3, 4, 5, 2, 1e-5)
    assert dt.allclose(mean, x.reshape(3, 2, -1).mean(-1)) and rstd.shape == (3, 2)
    assert dt.equal(out, F.group_norm(x, 2))
    out, mean, rstd = T.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    assert dt.allclose(T.batch_norm_elemt(x, None, None, mean, rstd, 1e-5), out, atol=1e-5)
    same = T.cudnn_batch_norm(x, dt.ones(4), None, None, None, True, 0.1, 1e-5)
    assert len(same) == 4 and dt.allclose(same[0], out, atol=1e-6)
    assert dt.equal(T.native_norm(x, 1, [2]), dt.norm(x, 1, 2))
    assert T.dequantize(x.double()).dtype is dt.float32


def test_batch_norm_of_several_ranks_is_that_of_one():
    x = dt.rand(6, 3, 4, dtype=dt.float64).requires_grad_()
    weight, bias = dt.rand(3, dtype=dt.float64), dt.rand(3, dtype=dt.float64)
    running = dt.zeros(3, dtype=dt.float64), dt.ones(3, dtype=dt.float64)
    same = [t.clone() for t in running]
    want = F.batch_norm(x, *same, weight, bias, True, 0.1, 1e-5)
    g = dt.rand(6, 3, 4, dtype=dt.float64)
    want.backward(g)
    parts, grads = x.detach().split([2, 4]), g.split([2, 4])
    stats = [T.batch_norm_stats(p, 1e-5) for p in parts]
    counts = dt.tensor([8.0, 16.0], dtype=dt.float64)
    means, rstds = (dt.stack(each) for each in zip(*stats, strict=True))
    mean, rstd = T.batch_norm_gather_stats_with_counts(
        parts[0], means, rstds, *running, 0.1, 1e-5, counts
    )
    for mine, its in zip(running, same, strict=True):
        assert dt.allclose(mine, its)
    out = dt.cat([T.batch_norm_elemt(p, weight, bias, mean, rstd, 1e-5) for p in parts])
    assert dt.allclose(out, want)
    sums = [T.batch_norm_backward_reduce(d, p, mean, rstd, weight, True, True, True)
            for d, p in zip(grads, parts, strict=True)]  # fmt: skip
    first, second = (a + b for a, b in list(zip(*sums, strict=True))[:2])
    back = [T.batch_norm_backward_elemt(d, p, mean, rstd, weight, first, second, counts)
            for d, p in zip(grads, parts, strict=True)]  # fmt: skip
    assert dt.allclose(dt.cat(back), x.grad)
    one = T.batch_norm_gather_stats(parts[0], means[:1], rstds[:1], None, None, 0.1, 1e-5, 8)
    assert dt.allclose(one[0], means[0]) and dt.allclose(one[1], rstds[0])
    moved = dt.zeros(3, dtype=dt.float64)
    found = T.batch_norm_update_stats(x, moved, None, 0.5)
    assert dt.allclose(found[0] / 2, moved)


def test_convolutions_by_position():
    x, w = dt.rand(1, 2, 5, 5), dt.rand(4, 1, 2, 2)
    want = F.conv2d(x, w, None, 2, 1, 1, 2)
    assert dt.equal(T.convolution(x, w, None, [2], [1], [1, 1], False, [0], 2), want)
    assert dt.equal(T.cudnn_convolution(x, w, [1], [2], [1], 2, False, False, True), want)
    assert dt.equal(T.cudnn_convolution_relu(x, w, None, [2], [1], [1], 2), want.relu())
    z = dt.rand(*want.shape) - 3
    got = T.cudnn_convolution_add_relu(x, w, z, 2, None, [2], [1], [1], 2)
    assert dt.equal(got, (want + z * 2).relu())
    t = dt.rand(2, 3, 2, 2)
    want = F.conv_transpose2d(x, t, None, 2, 1, 1)
    assert dt.equal(T.convolution(x, t, None, [2], [1], [1], True, [1], 1), want)
    got = T.cudnn_convolution_transpose(x, t, [1], [1], [2], [1], 1, False, False, True)
    assert dt.equal(got, want)


def test_tables():
    weight, index, offsets = dt.arange(12.0).reshape(3, 4), dt.tensor([0, 1, 2]), dt.tensor([0, 2])
    for mode, how in enumerate(("sum", "mean", "max")):
        out, bags, sizes, most = T.embedding_bag(weight, index, offsets, False, mode)
        assert dt.equal(out, F.embedding_bag(index, weight, offsets, mode=how))
        assert bags.tolist() == ([] if mode == 0 else [0, 0, 1])
        assert sizes.tolist() == ([0, 0] if mode == 0 else [2, 1])
    assert most.tolist() == [[1] * 4, [2] * 4]
    renormed = T.embedding_renorm_(weight.clone(), dt.tensor([1, 2]), 1.0, 2.0)
    assert dt.equal(renormed[0], weight[0])
    assert dt.allclose(renormed[1:].norm(dim=1), dt.ones(2), atol=1e-5)


def test_draws():
    dt.manual_seed(0)
    x = dt.ones(1000)
    out, kept = T.native_dropout(x, 0.25, True)
    assert 650 < kept.sum() < 850 and dt.allclose(out, kept * (1 / 0.75))
    assert T.native_dropout(x, 0.25, False)[1].all()
    drawn = T.binomial(dt.full((1000,), 10.0), dt.tensor(0.3))
    assert 2.7 < drawn.mean() < 3.3 and drawn.max() <= 10
    assert T.binomial(dt.tensor([4.0, 0.0]), dt.ones(2)).tolist() == [4.0, 0.0]
    with pytest.raises(RuntimeError, match="floating-point"):
        T.binomial(dt.tensor([1]), dt.tensor([0.5]))


def test_hashes_are_of_bits():
    x = dt.arange(12.0).reshape(3, 4)
    assert T.hash_tensor(x).item() == 4609434218613702656  # as PyTorch says
    assert T.hash_tensor(x, 1).tolist() == [4609434218613702656, 0, 0]
    assert T.hash_tensor(dt.tensor([-1, 2])).item() == np.uint64(18446744073709551613)


def test_products_of_small_integers_are_exact():
    a = dt.tensor([[127, -128], [1, 2]], dtype=dt.int8)
    found = T._int_mm(a, a)
    assert found.dtype == dt.int32 and found.tolist() == [[16001, -16512], [129, -124]]
    with pytest.raises(RuntimeError, match="two matrices of int8"):
        T._int_mm(a, a.int())
