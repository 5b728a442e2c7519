"""The table of faults: what it says of results, that its rows still run, and what they must see."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from injections.rows import __main__ as driver
from injections.rows.catalogue import ROWS
from injections.rows.hygiene import MARK, Census, marked, report_of
from injections.rows.jobs import Step
from injections.rows.many_hosts import check_leaders, expected
from injections.rows.row import Result, Row, Seen, Trial, table

ROW = Row(
    "R1", "a | b", "c", "d", lambda trial: Seen(), {"told": 0.05, "least": 2}, {"least": " of 3"}
)


def result_of(*seen):
    result = Result()
    for one in seen:
        result.add(one)
    return result


def test_the_worst_trial_counts():
    good, slow = Seen({"told": 0.01, "least": 3}), Seen({"told": 0.06, "least": 1})
    assert result_of(good).passed(ROW)
    result = result_of(good, slow, good)
    assert not result.passed(ROW)
    assert result.over(ROW) == ["told: 60 ms, not 50 ms", "least: 1 of 3, not 2 of 3"]
    assert not Result().passed(ROW)
    assert result_of(Seen()).over(ROW) == ["told: never seen", "least: never seen"]


def test_what_is_wrong_in_one_trial_is_wrong():
    result = result_of(Seen({"told": 0.01, "least": 3}), Seen({"told": 1.5, "least": 3}, ["x: y"]))
    assert not result.passed(ROW)
    text = table({"R1": ROW, "R2": ROW}, {"R1": result})
    assert text.splitlines()[2:] == [
        "| R1 | a / b | c | told 755 ms / 1.50 s; least 3 of 3 | 2 | "
        "**no**: told: 1.50 s, not 50 ms; 1 of 2 trials: x: y | d |"
    ]


def test_results_are_read_again(tmp_path):
    path = tmp_path / "kept.json"
    assert driver.read(path) == {} == driver.read(None)
    results = {"R1": result_of(Seen({"told": 0.01}, ["oh"]))}
    driver.write(path, results, {"R1": ROW})
    assert driver.read(path) == results


def test_a_trial_that_breaks_is_wrong():
    def breaks(trial):
        raise OSError("no such thing")

    row = Row("R1", "a", "b", "c", breaks)
    assert driver.run_row(row, 2, True).wrong == [
        "trial 1: OSError: no such thing",
        "trial 2: OSError: no such thing",
    ]
    assert (
        driver.run_row(Row("R1", "a", "b", "c", breaks, why_not=lambda: "x"), 2, True).wrong == []
    )


def test_what_is_left_is_found(tmp_path):
    census = Census(tmp_path.name, tmp_path)
    listens = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(flush=True); "
    child = subprocess.Popen(
        [sys.executable, "-c", listens + "time.sleep(60)"],
        env={**os.environ, MARK: tmp_path.name}, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        child.stdout.read(1)
        assert marked(tmp_path.name) == [child.pid]
        census.note_ports()
        (tmp_path / "log").touch()
        (tmp_path / "other").touch()
        found = census.complaints({"log"})
        assert [text[:2] for text in found] == ["H1", "H2", "H3"], found
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    (tmp_path / "other").unlink()
    assert census.complaints({"log"}) == []
    assert report_of(tmp_path, 1) == ({}, ["H4: there is no report.json"])


def test_two_leaders_are_found():
    def steps(*pids):
        return [Step(time.monotonic(), 0, 0, 2, n, 0, pid) for n, pid in enumerate(pids)]

    assert check_leaders(steps(1, 1, 2, 2, 3)) == []
    assert check_leaders(steps(1, 2, 1)) == ["two generations at once: [1, 2, 1]"]
    assert expected(0) == expected(1) != expected(2)


@pytest.mark.parametrize(("name", "number"), [("R1", 0), ("R8", 0), ("R18", 2)])
def test_rows_still_run(name, number, tmp_path):
    """What takes how long is not looked at here."""
    seen = ROWS[name].run(Trial(tmp_path, number, quick=True))
    assert seen.wrong == []
    assert seen.values.keys() <= ROWS[name].limits.keys()
