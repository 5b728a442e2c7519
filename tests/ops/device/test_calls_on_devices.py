"""Functions called on the strict device double as users call them: whatever is legal on the CPU is
legal there, with the same shapes and types. EVERY_DEVICE_SAMPLE=1 makes all calls of the tables."""

from __future__ import annotations

import itertools
import os

import pytest

import disttrain as dt
import disttrain.nn
from support.cases import legal_cases, type_cases

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


def spread_out(x):
    """Of eleven dimensions, that cannot be taken together."""
    return x.reshape((2, *(1,) * 9, 3)).expand(2, *(1, 2) * 4, 1, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: dt.floor_divide(x, 2.5), lambda x: x // 0.0, lambda x: 2 ** x.to(dt.int32),
        lambda x: dt.logical_xor(x.to(dt.complex64), x), lambda x: ~dt.logical_not(x + 1j),
        lambda x: x.to(dt.bool).scatter_add(0, dt.zeros_like(x, dtype=dt.int64), x > 0),
        lambda x: dt.searchsorted(dt.sort(x)[0].to(dt.bfloat16), x[0].to(dt.bfloat16)),
        lambda x: dt.bucketize(x, dt.sort(x[0])[0], right=True),
        lambda x: dt.searchsorted(dt.sort(x, -1)[0], x * 1.5),
        lambda x: dt.searchsorted(dt.sort(dt.sqrt(x), -1)[0], dt.sqrt(x), right=True),
        lambda x: dt.take(x, dt.tensor(4)),
        lambda x: spread_out(x).transpose(0, 2).argmax(-1),
        lambda x: spread_out(x).logsumexp((1, -1)),
        lambda x: dt.ones((0, 3), device=x.device).add_(x[:1]),
    ],
)  # fmt: skip
def test_calls_that_an_array_module_has_otherwise(double, call):
    x = dt.tensor([[1.0, -2.0, 0.0], [3.0, 0.5, -1.0]])
    x, y = (x[0], x[0].to("cuda")) if "bfloat16" in call.__code__.co_names else (x, x.to("cuda"))
    want, got = call(x), call(y)
    assert got.is_cuda and got.dtype is want.dtype
    assert str(got.cpu()) == str(want)


def test_numbers_in_a_row_are_made_there(double):
    double.counts.clear()
    for name, *args in (
        ("linspace", -1, 2, 7), ("linspace", 0, 1j, 3), ("linspace", 3, 1, 1),
        ("logspace", -1, 2, 4), ("logspace", 0, 5, 6, 2), ("eye", 3, 4), ("arange", 1, 8, 2),
    ):  # fmt: skip
        here, there = getattr(dt, name)(*args), getattr(dt, name)(*args, device="cuda")
        assert double.counts.uploads == 0
        assert there.is_cuda and there.dtype is here.dtype
        assert there.flatten().tolist() == pytest.approx(here.flatten().tolist(), rel=1e-6)
    with pytest.raises(ValueError, match="logspace: steps=-1"):
        dt.logspace(0, 1, -1, device="cuda")


def test_coins_of_given_chances(double):
    dt.manual_seed(0)
    x = dt.zeros(4, 500, device="cuda").bernoulli_(dt.tensor([[0.0], [1.0], [0.5], [0.9]]).cuda())
    assert x.is_cuda
    low, high, half, most = x.mean(1).tolist()
    assert (low, high) == (0, 1) and 0.4 < half < 0.6 and 0.8 < most < 0.97


def test_a_convolution_takes_few_launches(double):
    x = dt.randn(3, 4, 8, 8, device="cuda", requires_grad=True)
    w = dt.randn(6, 2, 3, 3, device="cuda", requires_grad=True)
    double.counts.clear()
    y = dt.nn.functional.conv2d(x, w, padding=1, stride=2, groups=2)
    assert double.counts.codes == 1  # all windows of all samples
    y.sum().backward()
    assert double.counts.codes == 3  # and one for each gradient
