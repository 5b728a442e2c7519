"""The mark's arguments: what they mean, and what is refused."""

from __future__ import annotations

import pytest

from launcher.testing.marks import Ask, MarkError, read_mark


def test_a_number_alone():
    assert read_mark((4,), {}) == read_mark((), {"n": 4}) == Ask(4)


def test_seeds_ask_for_simulated_ranks():
    ask = read_mark((2,), {"seeds": [3, 5]})
    assert ask.simulated and ask.seeds == (3, 5)


def test_a_cluster_is_simulated():
    ask = read_mark((2,), {"simulate": {"hosts": 2}, "timeout": 3})
    assert ask.simulated and ask.cluster == {"hosts": 2} and ask.timeout == 3.0


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ((), {}), ((0,), {}), ((True,), {}), ((4097,), {}), ((2.0,), {}), ((1, 2), {}),
        ((1,), {"n": 1}), ((1,), {"hosts": 2}), ((1,), {"backend": 3}), ((1,), {"timeout": 0}),
        ((1,), {"timeout": float("inf")}), ((1,), {"timeout": True}), ((1,), {"simulate": "yes"}),
        ((1,), {"seeds": [1], "simulate": False}),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(args, named):
    with pytest.raises(MarkError):
        read_mark(args, named)
