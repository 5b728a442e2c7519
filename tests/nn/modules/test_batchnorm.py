"""Norms over the batch: statistics, and what they standardise."""

import numpy as np
import pytest

from disttrain import core, nn


def tensor(values, kind=np.float64):
    return core.wrap(np.array(values, kind))


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_norms_standardise():
    x = randn(8, 6, 5) * 3 + 2
    for out, dims in (
        (nn.LayerNorm(5)(x), 2),
        (nn.BatchNorm1d(6)(x), (0, 2)),
        (nn.InstanceNorm1d(6)(x), 2),
    ):
        values = out.detach().numpy()
        np.testing.assert_allclose(values.mean(dims), 0, atol=1e-5)
        np.testing.assert_allclose(values.var(dims), 1, rtol=1e-3)


def test_batch_norm_tracks_and_then_uses_statistics():
    norm = nn.BatchNorm1d(2, momentum=0.5)
    x = tensor([[0.0, 2.0], [2.0, 6.0]], np.float32)
    norm(x)
    assert norm.running_mean.tolist() == [0.5, 2.0]
    assert norm.running_var.tolist() == [0.5 + 0.5 * 2, 0.5 + 0.5 * 8]
    assert norm.num_batches_tracked.item() == 1
    norm.eval()
    want = (x.numpy() - [0.5, 2.0]) / np.sqrt(np.array([1.5, 4.5]) + 1e-5)
    np.testing.assert_allclose(norm(x).detach().numpy(), want, rtol=1e-5)
    assert norm.num_batches_tracked.item() == 1
    average = nn.BatchNorm1d(2, momentum=None)
    average(x)
    average(x + 2)
    np.testing.assert_allclose(average.running_mean.numpy(), [2.0, 5.0])


def test_instance_norm_without_parameters_takes_other_numbers_of_channels():
    x = core.wrap(np.random.default_rng(0).normal(size=(2, 3, 4, 4)))
    with pytest.warns(UserWarning, match="does not match num_features"):
        assert nn.InstanceNorm2d(2)(x).tolist() == nn.InstanceNorm2d(3)(x).tolist()
    for settings in ({"affine": True}, {"track_running_stats": True}):
        with pytest.raises(RuntimeError, match="num_features=2"):
            nn.InstanceNorm2d(2, **settings)(x)
