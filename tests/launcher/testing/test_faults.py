"""Faults that a test asks for: on which ranks they can be had, and which were never reached."""

from __future__ import annotations

import pytest

from disttrain.errors import ConfigError
from launcher.options.simulation import Flags
from launcher.testing.faults import amiss, doomed, for_real, for_simulated, missed
from launcher.testing.marks import Ask

KILL = Ask(3, faults=("kill 1@all_reduce:2",))


def test_simulated_ranks_get_them_as_flags():
    ask = Ask(3, faults=("kill 1@send:2", "straggler 2=2x", "kill 0@send:1"))
    assert for_simulated(ask, Flags(seed=3)) == Flags(
        seed=3, kill=("1@send:2", "0@send:1"), straggler=("2=2x",)
    )


def test_real_ranks_get_them_with_their_kind():
    ask = Ask(3, faults=("stop 1@all_reduce:2", "delay *@send:1=50ms"))
    stop, delay = for_real(ask)
    assert (stop.kind, stop.rank, stop.verb, stop.number) == ("stop", 1, "all_reduce", 2)
    assert (delay.kind, delay.rank, delay.seconds) == ("delay", None, 0.05)


@pytest.mark.parametrize("kind", ["drop", "straggler"])
def test_what_real_ranks_cannot_have_is_refused(kind):
    with pytest.raises(ConfigError, match="need simulate=True"):
        for_real(Ask(3, faults=(f"{kind} 1@send:2",)))


def test_what_simulated_ranks_cannot_have_is_refused():
    with pytest.raises(ConfigError, match="stop is for real ones"):
        for_simulated(Ask(3, faults=("stop 1@send:2",)), Flags())


def test_a_rank_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="no rank 1 among 1"):
        for_real(Ask(1, faults=KILL.faults))


@pytest.mark.parametrize(
    ("happened", "left"),
    [
        ([], ["kill 1@all_reduce:2"]),
        (["kill 1@all_reduce:2"], []),
        (["--kill 1@all_reduce:2 at 3 ms"], []),
        (["stop 1@all_reduce:2", "kill 1@all_reduce:1", "kill 0@all_reduce:2"],
         ["kill 1@all_reduce:2"]),
    ],
)  # fmt: skip
def test_what_was_never_reached(happened, left):
    faults = for_real(KILL)
    assert missed(faults, happened) == left
    assert bool(amiss(faults, happened)) == bool(left)


def test_who_was_to_die():
    assert doomed(["kill 1@send:2", "--stop 2@send:1", "delay 0@send:1"]) == {1, 2}
