"""Parts of what runs eagerly, compiled for themselves."""

from __future__ import annotations

import random

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile.compiled import Compiled
from disttrain.compile.regions import Regions, regions_of


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x).tanh() * 2.0


class Whole(nn.Module):
    """Cannot be captured, and says what can."""

    def __init__(self):
        super().__init__()
        self.first, self.last = Part(), Part()

    def __regions__(self):
        return [self.first, self.last]

    def forward(self, x):
        return self.last(self.first(x) * (random.random() < 2.0))


def test_parts_are_each_found_once():
    whole = Whole()
    assert regions_of([whole, whole, nn.ReLU()]) == [whole.first, whole.last]
    whole.first = dt.compile(whole.first)
    assert regions_of([whole]) == [whole.last]


@pytest.mark.parametrize("as_module", [True, False])
def test_parts_are_compiled_where_the_whole_runs_eagerly(as_module):
    plain, whole, x = Whole(), Whole(), dt.ones(2, 3)
    whole.load_state_dict(plain.state_dict())
    run = dt.compile(whole if as_module else lambda x: whole(x))
    with pytest.warns(UserWarning, match=r"runs eagerly: .*\(2 parts of it compiled\)"):
        run(x)
    for _ in range(4):
        whole.zero_grad()
        plain.zero_grad()
        ours, expected = run(x), plain(x)
        ours.sum().backward()
        expected.sum().backward()
        assert ours.tolist() == expected.tolist()
        for a, b in zip(whole.parameters(), plain.parameters(), strict=True):
            assert a.grad.tolist() == b.grad.tolist()
    told = (run.forward if as_module else run).explain()
    assert told.count("inside: Part: 1 captured, 0 eager") == 2, told
    assert "forward" not in vars(whole.first) and type(whole.first.forward).__name__ == "method"


def test_an_error_leaves_the_module_as_it_was():
    part = Part()
    regions = Regions([part], Compiled)

    def fails():
        assert isinstance(part.forward, Compiled)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        regions(fails, (), {})
    assert "forward" not in vars(part)


def test_a_forward_of_a_modules_own_stays():
    part = Part()
    part.forward = lambda x: x
    Regions([part], Compiled)(lambda: part(dt.ones(1)), (), {})
    assert part(dt.ones(1)).tolist() == [1.0] and "forward" in vars(part)
