"""SyncBatchNorm as a layer: conversion, groups, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.errors import LaunchError, UninitializedError
from support.rounding import Sums

SUMS = Sums(terms=6 * 8, depth=2 * 4 * 3)


FEATURES, STEPS = 3, 3


def batch(step: int, dims: int, total: int) -> np.ndarray:
    rng = np.random.default_rng(step)
    return rng.standard_normal((total, FEATURES, *(2, 4)[: dims - 2])) * 3 + 5


@pytest.mark.simulated
def test_within_a_smaller_group() -> None:
    def body() -> np.ndarray:
        dist.init_process_group()
        rank = dist.get_rank()
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        norm = nn.SyncBatchNorm(FEATURES, process_group=groups[rank // 2]).double()
        y = norm(core.wrap(batch(rank // 2, 2, 6)[3 * (rank % 2) : 3 * (rank % 2) + 3]))
        dist.destroy_process_group()
        return y.detach().numpy()

    ours = dist.simulate(body, 4).results
    for pair in range(2):
        y = nn.BatchNorm1d(FEATURES).double()(core.wrap(batch(pair, 2, 6))).detach().numpy()
        SUMS.equal(np.concatenate(ours[2 * pair : 2 * pair + 2]), y)


def test_conversion_keeps_parameters_buffers_and_mode() -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Sequential(nn.BatchNorm2d(4)))
    net[1].eval()
    weight, mean = net[1].weight, net[1].running_mean
    out = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert out is net and isinstance(net[2][0], nn.SyncBatchNorm)
    assert net[1].weight is weight and net[1].running_mean is mean and not net[1].training
    assert list(net.state_dict()) == [
        "0.weight", "0.bias", *[f"{i}.{n}" for i in ("1", "2.0") for n in net[1].state_dict()],
    ]  # fmt: skip


def test_without_a_group_it_is_a_batch_norm() -> None:
    x = core.wrap(batch(0, 4, 4))
    ours, plain = nn.SyncBatchNorm(FEATURES).double(), nn.BatchNorm2d(FEATURES).double()
    np.testing.assert_array_equal(ours(x).detach().numpy(), plain(x).detach().numpy())


@pytest.mark.simulated
def test_wrong_channels_are_refused_before_anything_travels() -> None:
    def body() -> None:
        dist.init_process_group()
        nn.SyncBatchNorm(FEATURES)(dt.ones(2, FEATURES + 1))

    with pytest.raises(LaunchError, match="num_features=3 channels"):
        dist.simulate(body, 2)


def test_a_lazy_norm_is_converted_when_it_knows_its_channels() -> None:
    net = nn.Sequential(nn.LazyBatchNorm1d())
    with pytest.raises(UninitializedError, match="run the model once"):
        nn.SyncBatchNorm.convert_sync_batchnorm(net)
    net(dt.ones(2, 5))
    assert nn.SyncBatchNorm.convert_sync_batchnorm(net)[0].num_features == 5


@pytest.mark.simulated
def test_a_rank_outside_the_group_normalises_by_itself() -> None:
    def body() -> np.ndarray:
        dist.init_process_group()
        group = dist.new_group([0, 1])
        x = core.wrap(batch(dist.get_rank(), 2, 4))
        y = nn.SyncBatchNorm(FEATURES, process_group=group).double()(x)
        dist.destroy_process_group()
        return y.detach().numpy()

    alone = nn.BatchNorm1d(FEATURES).double()(core.wrap(batch(2, 2, 4))).detach().numpy()
    np.testing.assert_array_equal(dist.simulate(body, 3).results[2], alone)


def test_a_norm_that_stands_in_several_places_is_one_norm_after_conversion() -> None:
    norm = nn.BatchNorm1d(4)
    net = nn.ModuleDict({"a": norm, "b": nn.Sequential(norm), "c": norm})
    out = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert isinstance(out["c"], nn.SyncBatchNorm) and out["a"] is out["b"][0] is out["c"]


def test_a_norm_alone_is_converted_with_its_settings() -> None:
    norm = nn.BatchNorm2d(3, eps=0.5, momentum=None, affine=False, track_running_stats=False)
    group = object()
    out = nn.SyncBatchNorm.convert_sync_batchnorm(norm, group)
    assert (out.eps, out.momentum, out.weight, out.running_mean) == (0.5, None, None, None)
    assert out.process_group is group and out.training
    half = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3, bias=False))
    assert half.bias is None and half.weight is not None
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(nn.Linear(2, 2)), nn.Linear)
