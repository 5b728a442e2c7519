"""Names: the same path with wrappers and without, and lines of the program."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.record.names import Names, Sites
from support.recordings import Net

pytestmark = pytest.mark.simulated


class DistributedDataParallel(dt.nn.Module):
    """By its name a wrapper."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_paths_begin_with_the_class():
    net, names = Net(), Names()
    assert names.path(net.norm, net) == "Net.norm"
    assert names.path(net, net) == "Net"
    assert names.of(net.first.weight, "?") == "Net.first.weight"
    assert names.of(net.norm.running_mean, "?") == "Net.norm.running_mean"
    assert names.of(dt.ones(1), "?") == "?"


def test_wrappers_are_left_out():
    net, names = Net(), Names()
    outer = DistributedDataParallel(net)
    assert names.path(outer, outer) == "DistributedDataParallel"
    assert names.path(net.first, outer) == "Net.first"


def test_a_module_that_was_put_in_later_is_found():
    net, names = Net(), Names()
    names.path(net, net)
    net.extra = dt.nn.Linear(1, 1)
    assert names.path(net.extra, net) == "Net.extra"
    assert names.path(dt.nn.Linear(1, 1), net) == "Linear"


def test_buffers_are_those_of_now():
    net, names = Net(), Names()
    assert len(names.buffers(net)) == 3
    net.norm.running_mean = dt.ones(8)
    assert any(b is net.norm.running_mean for _, b in names.buffers(net))


def test_sites_are_lines_of_the_program():
    texts = []
    sites = Sites(lambda text: texts.append(text) or len(texts))
    assert [sites.here() for _ in range(2)] == [1, 1]
    assert "in _pytest" not in texts[0]
