"""Functions called on the strict device double as users call them: whatever is legal on the CPU is
legal there, with the same shapes and types. EVERY_DEVICE_SAMPLE=1 makes all calls of the tables."""

from __future__ import annotations

import itertools
import os

import pytest

import disttrain as dt
import disttrain.nn
from support import legal_cases, type_cases

EVERY = bool(os.environ.get("EVERY_DEVICE_SAMPLE"))
# Elsewhere on purpose: indices out of range of an empty tensor are not looked for on a device.
LOOKS = {"scatter_add", "index_add"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", legal_cases.GROUPS, ids=lambda g: g.__name__)
def test_what_is_legal_here_is_legal_there(double, group):
    different = []
    for name, label, call in itertools.islice(group(), 0, None, 1 if EVERY else 67):
        here = legal_cases.outcome(call, dt)
        with dt.device("cuda"):
            there = legal_cases.outcome(call, dt)
        if here != there and name not in LOOKS:
            different.append(f"{name}{label}: {here} on the CPU, {there} on the device")
    assert different == []


@pytest.mark.timeout(300)
@pytest.mark.skipif(not EVERY, reason="takes half a minute")
@pytest.mark.parametrize("group", type_cases.GROUPS, ids=lambda g: g.__name__)
def test_types_are_those_of_the_cpu(double, group):
    here = dict(group(dt))
    with dt.device("cuda"):
        there = dict(group(dt))
    assert there == here


@pytest.mark.parametrize(
    "call",
    [
        lambda x: dt.floor_divide(x, 2.5), lambda x: x // 0.0, lambda x: 2 ** x.to(dt.int32),
        lambda x: dt.logical_xor(x.to(dt.complex64), x), lambda x: ~dt.logical_not(x + 1j),
        lambda x: x.to(dt.bool).scatter_add(0, dt.zeros_like(x, dtype=dt.int64), x > 0),
        lambda x: dt.searchsorted(dt.sort(x)[0].to(dt.bfloat16), x[0].to(dt.bfloat16)),
        lambda x: dt.bucketize(x, dt.sort(x[0])[0], right=True),
        lambda x: dt.ones((0, 3), device=x.device).add_(x[:1]),
    ],
)  # fmt: skip
def test_calls_that_an_array_module_has_otherwise(double, call):
    x = dt.tensor([[1.0, -2.0, 0.0], [3.0, 0.5, -1.0]])
    x, y = (x[0], x[0].to("cuda")) if "bfloat16" in call.__code__.co_names else (x, x.to("cuda"))
    want, got = call(x), call(y)
    assert got.is_cuda and got.dtype is want.dtype
    assert str(got.cpu()) == str(want)
