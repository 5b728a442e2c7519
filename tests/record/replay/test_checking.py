"""Rows beside those of a recording."""

from __future__ import annotations

import pytest

from disttrain import context
from disttrain.record import rows
from disttrain.record.log.opening import CHECKER_SLOT
from disttrain.record.replay.checking import Checker
from disttrain.record.rows import Measure, Writer, write_about
from support.recordings import train

pytestmark = pytest.mark.simulated


def checked(folder, **how):
    """Train beside the recording in ``folder``: what differs, and the checker."""
    said, made = [], []

    def checker(where: str, rank: int) -> Checker:
        made.append(Checker(str(folder), rank, said.append))
        return made[0]

    slots = context.current().slots
    slots[CHECKER_SLOT] = checker
    try:
        train(folder, **how)
    finally:
        del slots[CHECKER_SLOT]
    made[0].finish(True)
    return said, made[0]


@pytest.mark.parametrize("level", rows.LEVELS)
def test_the_same_is_equal_and_the_recording_stays(tmp_path, level):
    train(tmp_path, level)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    said, checker = checked(tmp_path, level=level)
    assert said == [] and checker.compared == checker.count > 0
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_the_first_difference_is_at_its_operation(tmp_path):
    train(tmp_path, p=0.5)
    said, _ = checked(tmp_path, p=0.25)
    assert "Net.drop" in said[0]


def test_a_row_that_is_missing_is_said_when_its_step_is_over(tmp_path):
    write_about(str(tmp_path), {"world": 1})
    writer = Writer(str(tmp_path), 0)
    texts = {name: writer.text(name) for name in ("add", "mul", "Net")}
    for step in range(2):
        for name in ("add", "mul"):
            writer.put(0, 0, step, (texts[name], texts["Net"], 0, 0, 0), Measure(step))
    writer.close()
    said: list[str] = []
    checker = Checker(str(tmp_path), 0, said.append)
    names = [checker.text(name) for name in ("add", "Net")]
    for step in range(2):
        checker.put(0, 0, step, (*names, 0, 0, 0), Measure(step))
    assert said == ["operation mul of module Net is missing; it was recorded"]
    checker.finish(True)
    assert len(said) == 2


def test_threads_and_late_works_may_come_in_another_order(tmp_path):
    write_about(str(tmp_path), {"world": 1})
    writer = Writer(str(tmp_path), 0)
    about = [writer.text(f"call {i} of group world (ranks 0)") for i in (1, 2)]
    for i in (0, 1):
        writer.put(rows.RECEIVED, 0, 0, (writer.text("all_reduce"), 0, 0, 0, about[i]), Measure(i))
    writer.close()
    said: list[str] = []
    checker = Checker(str(tmp_path), 0, said.append)
    for i in (1, 0):
        told = checker.text(f"call {i + 1} of group world (ranks 0)")
        checker.put(rows.RECEIVED, 0, 5, (checker.text("all_reduce"), 0, 0, 0, told), Measure(i))
    checker.finish(True)
    assert said == []


@pytest.mark.parametrize("num_rows", [None, 1000])
def test_rows_that_were_not_written_any_more_are_no_difference(tmp_path, num_rows):
    train(tmp_path)
    bin_file, *_ = rows.paths(str(tmp_path), 0)
    with open(bin_file, "rb+") as file:
        file.truncate(60 * rows.ROW.itemsize + 7)
    said: list[str] = []
    checker = Checker(str(tmp_path), 0, said.append, num_rows)
    slots = context.current().slots
    slots[CHECKER_SLOT] = lambda folder, rank: checker
    try:
        train(tmp_path)
    finally:
        del slots[CHECKER_SLOT]
    assert said == [] and checker.torn and 0 < checker.compared <= 60 < checker.count
