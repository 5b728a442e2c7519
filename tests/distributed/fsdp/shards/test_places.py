"""Where units lie and are computed with: the host, a device, or apart from each other."""

from __future__ import annotations

import types

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.backends.device.memory import HOST
from disttrain.backends.null import NullArray
from disttrain.distributed.fsdp.shards.places import Places, device_type_of, places_of
from disttrain.distributed.fsdp.shards.precision import (
    CPUOffloadPolicy,
    DiskOffloadPolicy,
    OffloadPolicy,
)

pytestmark = pytest.mark.simulated


def test_on_the_host_nothing_is_apart():
    for policy in (None, OffloadPolicy(), CPUOffloadPolicy(), DiskOffloadPolicy()):
        found = places_of([np.zeros(2), NullArray((2,), np.dtype("f4"))], "cpu", policy)
        assert found.use.on_host and not found.apart and not found.pinned
    zeros = found.shards(3, np.dtype("f8"))
    assert zeros.tolist() == [0.0] * 3 and zeros.dtype == "f8"
    assert places_of([np.zeros(1)], "meta").use.on_host


def test_parameters_on_the_host_go_to_the_meshs_device(double):
    found = places_of([np.zeros(2)], "cuda")
    assert found.use == found.home and found.use.kind == "cuda" and found.use.index == 0
    with dt.cuda.device(1):
        assert places_of([np.zeros(2)], "cuda").use.index == 1
    there = dt.ones(2, device="cuda:1").array
    assert places_of([there], "cuda").use.index == 1
    assert places_of([there], "cpu").use.kind == "cuda"  # where they are counts


@pytest.mark.parametrize("pin", [False, True])
def test_shards_are_kept_on_the_host_where_that_is_asked_for(double, pin):
    found = places_of([dt.ones(2, device="cuda").array], "cuda", CPUOffloadPolicy(pin_memory=pin))
    assert found.apart and found.home is HOST and found.use.kind == "cuda" and found.pinned is pin
    zeros = found.shards(4, np.dtype("f4"))
    assert isinstance(zeros, np.ndarray) and zeros.tolist() == [0.0] * 4
    plain = places_of([dt.ones(2, device="cuda").array], "cuda", OffloadPolicy())
    assert not plain.apart and plain.shards(2, np.dtype("f4")).__class__ is not np.ndarray


def test_the_device_that_a_program_means(double):
    gloo, nccl = (types.SimpleNamespace(backend=b) for b in ("gloo", "nccl"))
    line = nn.Linear(1, 1)
    assert device_type_of([line], gloo) == "cpu" and device_type_of([line], nccl) == "cuda"
    assert device_type_of([line.to("meta")], gloo) == "cpu"
    assert device_type_of([nn.Linear(1, 1), nn.Linear(1, 1).cuda()], gloo) == "cuda"
    assert device_type_of([], nccl) == "cuda"


def test_without_a_device_a_group_for_some_is_no_reason():
    nccl = types.SimpleNamespace(backend="cpu:gloo,cuda:nccl")
    if not dt.cuda.is_available():
        assert device_type_of([nn.Linear(1, 1)], nccl) == "cpu"
    assert Places(HOST, HOST) == Places(HOST, HOST, False)
