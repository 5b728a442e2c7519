"""Convolutions and their adjoints."""

import numpy as np
import pytest

from disttrain import core, nn

F = nn.functional


def tensor(values, kind=np.float64):
    return core.wrap(np.array(values, kind))


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_linear_and_conv_by_hand():
    net = nn.Linear(2, 1)
    net.load_state_dict({"weight": tensor([[2.0, 3.0]]), "bias": tensor([1.0])})
    assert net(tensor([[1.0, 10.0]], np.float32)).tolist() == [[33.0]]
    x, w = randn(1, 2, 5, 4), randn(3, 2, 2, 3, seed=1)
    got = F.conv2d(x, w, stride=(2, 1)).numpy()
    want = np.zeros((1, 3, 2, 2))
    for i in range(2):
        for j in range(2):
            part = x.numpy()[:, :, 2 * i : 2 * i + 2, j : j + 3]
            want[:, :, i, j] = np.einsum("nchw,ochw->no", part, w.numpy())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_transposed_convolution_is_the_adjoint():
    w = randn(4, 2, 3, 3)
    x, y = randn(2, 2, 7, 7, seed=1), randn(2, 4, 4, 4, seed=2)
    forward = (F.conv2d(x, w, stride=2, padding=1) * y).sum().item()
    back = (F.conv_transpose2d(y, w, stride=2, padding=1) * x).sum().item()
    assert forward == pytest.approx(back, rel=1e-4)


def test_unfold_and_fold_are_adjoint():
    x = randn(2, 3, 5, 6)
    settings = {"kernel_size": (2, 3), "padding": 1, "stride": 2}
    cols = F.unfold(x, **settings)
    y = randn(*cols.shape, seed=1)
    want = (cols * y).sum().item()
    assert (F.fold(y, (5, 6), **settings) * x).sum().item() == pytest.approx(want, rel=1e-4)
