"""Plans of training: their names, their ranks, and what they make of a model."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.distributed import DistributedDataParallel
from disttrain.distributed.fsdp import FSDPModule
from disttrain.testing import Plan, ddp, fsdp, single
from support.simulated import on_ranks


def test_names_tell_ranks_and_options():
    plan = ddp(3, bucket_cap_mb=1, static_graph=True)
    assert (str(plan), plan.num_ranks) == ("ddp(3, bucket_cap_mb=1, static_graph=True)", 3)
    assert str(fsdp(2)) == "fsdp(2)" and str(single) == "single" and single.num_ranks == 1
    assert all(p.splits_batch for p in (single, plan, fsdp(2)))
    with pytest.raises(AttributeError):
        plan.num_ranks = 4  # plans are compared and shown by what they were made with
    assert Plan("x", 2, single.wrap, splits_batch=False).splits_batch is False


def test_one_process_trains_the_model_as_it_is():
    model = nn.Linear(2, 2)
    assert single.wrap(model) is model


def test_each_plan_wraps_with_its_options():
    def body():
        replicated, sharded = nn.Linear(2, 3), nn.Linear(2, 3)
        wrapped = ddp(2, find_unused_parameters=True).wrap(replicated)
        assert isinstance(wrapped, DistributedDataParallel) and wrapped.module is replicated
        assert wrapped.find_unused_parameters
        assert fsdp(2, reshard_after_forward=False).wrap(sharded) is sharded
        assert isinstance(sharded, FSDPModule)
        return tuple(sharded.weight.to_local().shape), wrapped(dt.ones(1, 2)).shape

    assert on_ranks(body) == [((2, 2), (1, 3)), ((1, 2), (1, 3))]
