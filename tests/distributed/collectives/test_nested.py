"""Tensors found and replaced in what modules take and give."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed import DistributedDataParallel as DDP
from disttrain.distributed.collectives.nested import cast, find_tensors, map_tensors
from disttrain.distributed.ddp.reducer.mixed_precision import MixedPrecision
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP
from disttrain.distributed.fsdp import MixedPrecision as ShardedPrecision
from disttrain.distributed.fsdp import MixedPrecisionPolicy, fully_shard

pytestmark = pytest.mark.simulated

Pair = namedtuple("Pair", "a b")


@dataclass
class Record:
    x: Any
    more: Any = None
    late: Any = field(init=False, default=None)


@dataclass(frozen=True)
class Frozen:
    x: Any


class Output(OrderedDict):
    """A dict whose entries are attributes, too, as libraries of models return it."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.__dict__[key] = value


def number(value: float) -> dt.Tensor:
    return core.wrap(np.full((2,), value, np.float32))


def containers() -> list[Any]:
    """Each with one Tensor, 1.0, beside plain values."""
    late = Record("x")
    late.late = number(1)
    return [
        [number(1), "s"],
        (None, number(1)),
        Pair(number(1), 3),
        {"k": number(1)},
        Output(out=number(1)),
        Record(number(1)),
        Record(1, {"k": [number(1)]}),
        late,
        Frozen(number(1)),
    ]


@pytest.mark.parametrize("value", containers(), ids=lambda v: type(v).__name__)
def test_containers_keep_their_class(value: Any) -> None:
    doubled = map_tensors(lambda t: t * 2, value)
    assert type(doubled) is type(value) and doubled is not value
    assert [t.tolist() for t in find_tensors(doubled)] == [[2, 2]]
    assert [t.tolist() for t in find_tensors(value)] == [[1, 1]]  # what was given stays
    assert map_tensors(lambda t: t, value) is value


def test_entries_that_are_attributes() -> None:
    assert cast(Output(out=number(1)), np.float64).out.dtype is dt.float64


def test_only_floating_tensors_are_cast() -> None:
    whole, flags = dt.arange(3), dt.tensor([True])
    given = [number(1), whole, flags, 2.5, dt.zeros(2, dtype=dt.bfloat16)]
    out = cast(given, np.float16)
    assert [getattr(v, "dtype", v) for v in out] == [
        dt.float16, dt.int64, dt.bool, 2.5, dt.float16,
    ]  # fmt: skip
    assert out[1] is whole and cast(out[:4], np.float16)[0] is out[0]


class Net(nn.Module):
    """Takes and gives records."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.seen: Any = None

    def forward(self, given: Record) -> Output:
        self.seen = given.x.dtype
        return Output(out=self.linear(given.x))


def sharded(net: Net) -> Any:
    policy = MixedPrecisionPolicy(param_dtype=dt.bfloat16, output_dtype=dt.float32)
    return fully_shard(net, mp_policy=policy)


def wrapped(net: Net) -> Any:
    precision = ShardedPrecision(param_dtype=dt.bfloat16, cast_forward_inputs=True)
    return FSDP(net, mixed_precision=precision)


def replicated(net: Net) -> Any:
    return DDP(net, mixed_precision=MixedPrecision(param_dtype=dt.bfloat16))


@pytest.mark.parametrize("make", [sharded, wrapped, replicated])
def test_mixed_precision_reaches_records(make: Any) -> None:
    def body() -> tuple:
        dist.init_process_group()
        net = Net()
        model = make(net)
        out = model(Record(dt.ones(1, 2)))
        out.out.sum().backward()
        grads = [p.grad.dtype for p in model.parameters() if p.numel()]
        return net.seen, out.out.dtype, type(out) is Output, set(grads)

    last = dt.float32 if make is sharded else dt.bfloat16
    for got in dist.simulate(body, 2).results:
        assert got == (dt.bfloat16, last, True, {dt.float32})
