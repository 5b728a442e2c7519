"""Norms of gradients on devices: every number stays there, parts are joined."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn.utils import device_norms
from disttrain.nn.utils.device_norms import on_device, scale, total_norm


def test_gradients_on_several_devices_and_the_host(double):
    def grads(*places):
        params = [dt.full((2, 3), i + 1.0, device=p) for i, p in enumerate(places)]
        for p in params:
            p.grad = p.clone()
        return params

    want = grads("cpu", "cpu", "cpu")
    total = dt.nn.utils.clip_grad_norm_(want, 1.0).item()
    for places in (("cuda:0", "cuda:1", "cuda:0"), ("cpu", "cuda:1", "cpu")):
        params = grads(*places)
        found = dt.nn.utils.clip_grad_norm_(params, 1.0)
        assert found.is_cuda and found.item() == pytest.approx(total, rel=1e-6)
        for p, w in zip(params, want, strict=True):
            assert p.grad.device == p.device
            np.testing.assert_allclose(p.grad.cpu().numpy(), w.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5, math.inf, -math.inf])
def test_the_norm_of_all_elements_together(double, p):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("f4") for s in ((3,), (2, 2), ())]
    found = total_norm([dt.from_numpy(a).cuda() for a in arrays], p)
    assert found.is_cuda and found.shape == ()
    want = np.linalg.norm(np.concatenate([a.reshape(-1) for a in arrays]), p)
    assert found.item() == pytest.approx(want, rel=1e-5)


def test_order_0_counts_tensors_and_half_types_are_summed_wide(double):
    tensors = [dt.tensor([0.0, 3.0]).cuda(), dt.zeros(2).cuda(), dt.ones(1).cuda()]
    assert total_norm(tensors, 0.0).item() == 2.0
    half = [dt.full((4,), 300.0, dtype=dt.float16).cuda()]
    assert total_norm(half, 2.0).item() == pytest.approx(600.0)


def test_what_is_empty_changes_no_norm(double):
    empty, some = dt.ones(0).cuda(), dt.tensor([3.0, -4.0]).cuda()
    for p, want in ((2.0, 5.0), (math.inf, 4.0), (-math.inf, 3.0)):
        assert total_norm([empty, some], p).item() == want


def test_where_numbers_lie(double):
    here, there = dt.ones(2), dt.ones(2, device="cuda:1")
    sparse = dt.sparse_coo_tensor([[0]], [1.0], (2,))
    assert not on_device([here, sparse]) and on_device([here, there]) and not on_device([])
    assert total_norm([here, there], 2.0).device == there.device


def test_only_what_is_too_long_is_scaled(double):
    for most, factor in ((10.0, 1.0), (2.5, 0.5)):
        tensors = [dt.tensor([3.0]).cuda(), dt.tensor([4.0], dtype=dt.float64)]
        scale(tensors, most, total_norm(tensors, 2.0))
        assert tensors[0].tolist() == pytest.approx([3.0 * factor], rel=1e-5)
        assert tensors[1].tolist() == pytest.approx([4.0 * factor], rel=1e-5)
        assert tensors[1].dtype is dt.float64


def test_the_host_does_not_wait(double):
    tensors = [dt.full((3,), 2.0).cuda() for _ in range(3)]
    before = list(double.counts.waits)
    scale(tensors, 1.0, total_norm(tensors, 2.0))
    assert double.counts.waits == before
    assert tensors[0].tolist() == pytest.approx([1 / 3] * 3, rel=1e-5)


@pytest.mark.parametrize(
    ("p", "how"), [(2.0, "sum"), (0.0, "sum"), (math.inf, "max"), (-math.inf, "min")]
)
def test_parts_are_joined_with_what_other_ranks_have(p, how):
    asked = []

    def over_parts(values, kind):
        asked.append(kind)
        values += 9.0 if kind == "sum" and p else 0.0  # another rank has 3, in squares

    params = []
    for grad in ([4.0], None):
        q = nn.Parameter(dt.ones(1))
        q.grad = None if grad is None else dt.tensor(grad)
        q.over_parts = over_parts
        params.append(q)
    found = total_norm([], p, params)
    assert asked == [how]  # one message for all of them
    assert found.item() == {2.0: 5.0, 0.0: 1.0}.get(p, 4.0)
    nothing = device_norms._of_parts(params[1:], 2.0)
    assert nothing.tolist() == [0.0]
