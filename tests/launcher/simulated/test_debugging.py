"""The debugger on a simulated cluster: any rank at the one terminal, and back in time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disttrain.comm.transports.sim.scheduler import Scheduler
from disttrain_launcher.simulated.debugging import Debugging, Point, run_again
from support.dtrun import dtrun
from support.ptys import Typist, started

THREE = ("--simulate", "3")
ROUNDS = """
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
total = 0.0
for i in range(4):
    x = dt.ones(3) * (rank + i)
    print("round", i)
    dist.all_reduce(x)
    total += x.sum().item()
    if i == 2 and rank == 1:
        breakpoint()
        seen = i
print("total", total)
"""


@pytest.fixture
def typists() -> Iterator[Callable[[Typist], Typist]]:
    known: list[Typist] = []

    def know(typist: Typist) -> Typist:
        known.append(typist)
        return typist

    yield know
    for typist in reversed(known):
        typist.close()


def at(rank: int) -> str:
    return rf"\(Pdb rank {rank}\) $"


def ask(job: Typist, words: str, rank: int = 1) -> str:
    """What comes until the next prompt."""
    job.line(words)
    return job.expect(rf"(?s){re.escape(words)}\n(.*?){at(rank)}")[1]


@pytest.mark.parametrize("compute", [(), ("--compute", "0")])
def test_back_to_earlier_turns(tmp_path: Path, typists, compute) -> None:
    job = typists(started(tmp_path, ROUNDS, *THREE, *compute))
    job.expect(r"-> breakpoint\(\)\n" + at(1))
    assert ask(job, "p i, total") == "(2, 54.0)\n"
    assert "-> seen = i" in ask(job, "n")
    schedule = ask(job, "schedule 4")
    (here,) = re.findall(r"turn (\d+): rank 1  <- here", schedule)
    assert schedule.count("turn ") == 4 and "rank 1: is here" in schedule
    said = ask(job, "back")
    assert f"turn {here}: rank 1 goes on" in said and "-> dist.all_reduce(x)" in said
    assert ask(job, "p i, total") == "(2, 27.0)\n"
    assert "-> total += " in ask(job, "n")
    ask(job, "back 2")
    assert ask(job, "p i, total") == "(1, 9.0)\n"
    heard = job.said
    job.line("c")  # from there on as before, and heard again
    job.expect("round 2")
    job.expect(r"-> breakpoint\(\)\n" + at(1))
    assert "round 0" not in job.said[len(heard) :]
    assert ask(job, "p i, total") == "(2, 54.0)\n"
    job.line("c")
    assert job.ends() == 0
    assert len(re.findall(r"total 90.0", job.said)) == 3
    assert job.is_as_before


def test_to_any_turn_of_any_rank(tmp_path: Path, typists) -> None:
    job = typists(started(tmp_path, ROUNDS, *THREE, "--seed", "3"))
    job.expect(at(1))
    first = int(re.findall(r"turn (\d+): rank", ask(job, "schedule 999"))[0])
    assert first == 1
    turns = re.findall(r"turn (\d+): rank 2", ask(job, "schedule 12"))
    job.line(f"turn {turns[-1]}")
    job.expect(rf"turn {turns[-1]}: rank 2 goes on\n" + r"(?s:.*)" + at(2))
    assert ask(job, "p rank", 2) == "2\n"
    job.line("turn 1")
    rank = int(job.expect(r"turn 1: rank (\d) goes on")[1])
    job.expect(r"-> import disttrain as dt.*\n" + at(rank))
    job.line("q")
    assert job.ends() == 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("back 99", r"rank 1 has come on \d+ times before"),
        ("back x", "x: a number from 1 on is needed"),
        ("turn 0", "0: a number from 1 on is needed"),
        ("turn 99999", r"there were turns 1 to \d+ until now"),
        ("turn", "there were turns 1 to"),
        ("run", "a rank cannot be run anew"),
    ],
)
def test_what_cannot_be(tmp_path: Path, typists, words: str, answer: str) -> None:
    job = typists(started(tmp_path, ROUNDS, *THREE))
    job.expect(at(1))
    assert re.search(answer, ask(job, words))
    job.line("c")
    assert job.ends() == 0


def test_quit_and_ctrl_c(tmp_path: Path, typists) -> None:
    job = typists(started(tmp_path, ROUNDS, *THREE))
    job.expect(at(1))
    job.type("\x03")
    job.expect("quit ends the simulation")
    job.line("")
    job.line("q")
    assert job.ends() == 1
    assert "rank 1 was ended by `quit` in the debugger" in job.said


def test_time_does_not_pass_while_people_think(tmp_path: Path, typists) -> None:
    """What is computed at the prompt is none of the program's time."""
    job = typists(started(tmp_path, ROUNDS, *THREE))
    job.expect(at(1))
    ask(job, "p sum(i * i for i in range(6_000_000))")
    job.line("c")
    assert job.ends() == 0
    virtual, unit = re.findall(r"([\d.]+) (ms|s) of virtual time", job.said)[0]
    computes = [float(x) for x in re.findall(r"dtrun: +1 +([\d.]+)%", job.said)]
    assert unit == "ms" or float(virtual) < 60, computes


def test_a_rank_that_fails_is_looked_at(tmp_path: Path, typists) -> None:
    script = ROUNDS.replace("        breakpoint()", "        raise ValueError('bad')")
    job = typists(started(tmp_path, script, *THREE, "--pdb"))
    job.expect("ValueError: bad")
    job.expect(r"-> raise ValueError\(.bad.\)\n" + at(1))
    assert ask(job, "p i") == "2\n"
    job.line("back")
    job.expect(r"-> dist.all_reduce\(x\)\n" + at(1))
    assert ask(job, "p i") == "2\n"
    job.line("c")
    job.expect(at(1))
    job.line("q")
    assert job.ends() == 1


def test_commands_from_a_file(tmp_path: Path) -> None:
    """Without a terminal ranks talk with what standard input is; at its end they quit."""
    ended = dtrun(tmp_path, ROUNDS, *THREE)
    assert ended.code == 1
    assert "was ended by `quit` in the debugger" in ended.err


def test_exploring_passes_by(tmp_path: Path) -> None:
    ended = dtrun(tmp_path, ROUNDS, *THREE, "--explore", "2", timeout=60)
    assert ended.code == 0, ended.err


def test_points_travel() -> None:
    point = Point(7, b"\0" * 16)
    assert Point.decode(point.encode()) == point


def test_run_again_gives_the_last_code() -> None:
    def run(debugging: Debugging) -> int:
        if debugging.point.turn < 3:
            debugging.scheduler = Scheduler(0)
            debugging.go(debugging.point.turn + 1)
        return 40 + debugging.point.turn

    assert run_again(run) == 43
