"""A batch over several devices of one process: parts, copies, results; gradients as of one device.
The CPU stands for each device: what is cut and put together is the same."""

from __future__ import annotations

from collections import namedtuple

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import ConfigError
from disttrain.nn import parallel

TWO = ["cpu", "cpu"]
Pair = namedtuple("Pair", "a b")


def test_inputs_are_cut_in_their_containers():
    x = dt.arange(6.0).reshape(3, 2)
    a, b = parallel.scatter((x, [x, 5], {"k": x}, Pair(x, "t"), "s"), TWO)
    assert a[0].shape == (2, 2) and b[0].tolist() == [[4.0, 5.0]]
    assert b[1][0].shape == (1, 2) and b[1][1] == 5 and b[2]["k"].shape == (1, 2)
    assert isinstance(b[3], Pair) and b[3].b == b[4][0:0] + "t" and b[4] == "s"
    assert len(parallel.scatter(x[:1], TWO)) == 1
    args, named = parallel.scatter_kwargs((), {"k": x}, TWO, 1)
    assert args == ((), ()) and named[0]["k"].shape == (3, 1)


def test_results_come_together_in_their_containers():
    parts = [{"x": (dt.full((n, 2), float(n)), None), "n": [dt.tensor(1.0)]} for n in (1, 2)]
    with pytest.warns(UserWarning, match="scalars"):
        whole = parallel.gather(parts, -1)
    assert whole["x"][0].shape == (3, 2) and whole["x"][1] is None
    assert whole["n"][0].tolist() == [1.0, 1.0]
    assert isinstance(parallel.gather([Pair(dt.ones(1, 2), None)] * 2, "cpu", 1), Pair)
    with pytest.raises(ConfigError, match="same number of keys"):
        parallel.gather([{"a": dt.ones(1)}, {}], "cpu")


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_gradients_are_those_of_one_device(rows):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    net[2].weight = nn.Parameter(net[2].weight.detach())
    x = dt.rand(rows, 3)
    want = net(x)
    want.square().sum().backward()
    grads = [p.grad for p in net.parameters()]
    net.zero_grad()
    got = parallel.data_parallel(net, x, TWO)
    assert dt.allclose(got, want, atol=1e-6)
    got.square().sum().backward()
    for p, g in zip(net.parameters(), grads, strict=True):
        assert dt.allclose(p.grad, g, atol=1e-5)


def test_copies_share_what_the_module_shares_and_are_apart_where_asked():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net.append(net[0])
    one, other = parallel.replicate(net, TWO, detach=True)
    assert one[0] is one[2] and one[0] is not other[0] and not list(one.parameters())
    one(dt.rand(4, 2)).sum()
    assert net[0].weight.grad is None and not one[0].weight.requires_grad
    with pytest.raises(AssertionError, match="as many of each"):
        parallel.parallel_apply([one], [dt.ones(1, 2)] * 2)


def test_without_devices_it_is_the_module():
    wrapped = nn.DataParallel(nn.Linear(3, 2))
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    assert wrapped(dt.ones(2, 3)).shape == (2, 2)
    spread = nn.DataParallel(nn.Linear(3, 2), device_ids=TWO, output_device="cpu")
    spread(input=dt.ones(4, 3)).sum().backward()
    assert spread.module.weight.grad is not None


def test_the_module_for_several_processes_has_its_name_here():
    assert parallel.DistributedDataParallel is dt.distributed.DistributedDataParallel
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        parallel.Other
