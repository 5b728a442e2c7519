"""Which steps a schedule takes."""

from __future__ import annotations

import pytest

from disttrain.profiler import schedule


def names(plan, n):
    return "".join(plan(k).name[0] + ("!" if "SAVE" in plan(k).name else "") for k in range(n))


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}, "NNWRR!NWRR!NNN"),
        ({"wait": 0, "warmup": 0, "active": 1}, "R!R!R!"),
        ({"wait": 2, "warmup": 0, "active": 1, "skip_first_wait": 1}, "R!NNR!NN"),
    ],
)
def test_cycles(options, wanted):
    assert names(schedule(**options), wanted.replace("!", "").__len__()) == wanted


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"active": 0}, {"repeat": -2}])
def test_what_has_no_meaning(wrong):
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(**{"wait": 0, "warmup": 0, "active": 1, **wrong})
    with pytest.raises(AssertionError, match="non-negative"):
        schedule(wait=0, warmup=0, active=1)(-1)
