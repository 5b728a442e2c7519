"""Curves from records, and thinned ones: no spike and no gap is lost."""

import math

from disttrain.board.series import curves, is_counter, thinned


def test_numbers_become_curves_by_kind_and_name():
    records = [
        {"kind": "train", "step": 1, "epoch": 1, "loss": 2.0, "note": "x", "done": True},
        {"kind": "train", "step": 2, "loss": "nan"},
        {"step": 2, "memory": 5},
        {"kind": "train", "loss": 1.0},
        {"kind": "train", "step": math.inf, "loss": 1.0},
    ]
    assert curves(records) == {"train/loss": ([1, 2], [2.0, None]), "memory": ([2], [5])}


def test_values_that_are_no_numbers_are_left_out():
    odd = {"list": [1], "dict": {"a": 1}, "none": None, "text": "x", "large": 10**400, "yes": True}
    records = [{"step": 1, "kind": [1], "loss": 1.0, **odd}, {"step": 10**400, "loss": 1.0}]
    assert curves(records) == {"[1]/loss": ([1], [1.0])}


def test_what_a_resumed_run_computes_again_is_left_out():
    steps = [{"kind": "train", "step": s, "loss": float(s)} for s in (1, 2, 3)]
    again = [{"kind": "resume", "step": 1}, {"kind": "train", "step": 2, "loss": 20.0}]
    assert curves(steps + again) == {"train/loss": ([1, 2], [1.0, 20.0])}


def test_a_thinned_curve_keeps_its_ends_spikes_and_gaps():
    values = [math.sin(i / 50) for i in range(10_000)]
    values[4321], values[7000], values[5000] = 99.0, -99.0, None
    steps, kept = thinned((list(range(10_000)), values), 300)
    assert len(steps) <= 410
    assert (steps[0], steps[-1]) == (0, 9999)
    known = [v for v in kept if v is not None]
    assert (max(known), min(known)) == (99.0, -99.0)
    assert kept[steps.index(5000)] is None
    assert steps == sorted(steps)
    short = ([1, 2], [1.0, None])
    assert thinned(short) is short


def test_what_merely_counts_is_told_from_what_is_measured():
    def counts(*values):
        return is_counter((list(range(len(values))), list(values)))

    saw = [64 * (i % 22 + 1) for i in range(66)]
    assert counts(*saw) and counts(1, 2, 3, 4) and counts(*range(0, 90, 3))
    assert counts(*[min(v, 1400) for v in saw])  # the last batch of an epoch is smaller
    for measured in ([1, 2], [5, 5, 5, 5], [3, 5, 6, 2, 4, 9, 1], [1.0, 2.0, 3.0], [9, 8, 7, 6],
                     [1, None, 3], [1, 2, 3, 9, 8, 7, 8, 9]):  # fmt: skip
        assert not counts(*measured)
