"""``--explore`` over orders of messages, and ``--replay``: whole programs, run by the command."""

from __future__ import annotations

import json
import re

import pytest

from support.dtrun import dtrun

pytestmark = pytest.mark.timeout(120)

HEAD = """
import disttrain as dt
from disttrain import distributed as dist
dist.init_process_group()
rank, x = dist.get_rank(), dt.zeros(1)
"""
RACE = (
    HEAD
    + """
if rank == 0:
    dist.recv(x)
    print("first", float(x))
    dist.recv(x)
else:
    dist.send(dt.full((1,), float(rank)), 0)
"""
)
SUM = (
    HEAD
    + """
if rank == 0:
    total = 0.0
    for _ in range(dist.get_world_size() - 1):
        dist.recv(x)
        total += float(x)
    print("total", total)
else:
    dist.send(dt.full((1,), float(rank)), 0)
dist.barrier()
"""
)
CROSSED = (
    HEAD
    + """
dist.send(x, 1 - rank)
dist.recv(x, 1 - rank)
"""
)


def test_a_proof(tmp_path):
    ended = dtrun(tmp_path, SUM, "--simulate", "3", "--explore", "10", "--verdict", "v.json")
    assert ended.code == 0, ended.err
    assert "proof: no deadlock and the same results in all 4 interleavings (complete" in ended.err
    found = json.loads((tmp_path / "v.json").read_text())
    assert found["verdict"] == "proof" and found["complete"] and found["interleavings"] == 4
    assert found["ranks"] == 3


def test_results_that_differ_and_their_replay(tmp_path):
    ended = dtrun(tmp_path, RACE, "--simulate", "3", "--explore", "4")
    assert ended.code == 1
    assert "results differ in interleaving all:1" in ended.err
    assert "first 1.0" in ended.err and "first 2.0" in ended.err
    (order,) = re.findall(r"replay it with: dtrun --simulate 3 --replay (\S+) ", ended.err)
    again = dtrun(tmp_path, RACE, "--simulate", "3", "--replay", order)
    assert again.code == 0 and "[rank 0] first 2.0" in again.out
    assert "gets send(" in again.err
    other = dtrun(tmp_path, RACE, "--simulate", "3", "--replay", "all")
    assert "[rank 0] first 1.0" in other.out


def test_a_deadlock_without_buffers_and_its_replay(tmp_path):
    ended = dtrun(tmp_path, CROSSED, "--simulate", "2", "--explore", "2", "--verdict", "v.json")
    assert ended.code == 1
    assert "deadlock in interleaving none (sends that do not wait: none)" in ended.err
    assert "no receive has taken it" in ended.err and "_program" not in ended.err
    assert "a deadlock where a send waits for its receive. So do sends of NCCL" in ended.err
    assert "none of the 1 interleavings with larger buffers fails. Safe everywhere" in ended.err
    assert json.loads((tmp_path / "v.json").read_text())["schedule"] == "none"
    again = dtrun(tmp_path, CROSSED, "--simulate", "2", "--replay", "none")
    assert again.code == 1 and "Deadlock" in again.err


def test_a_budget_that_is_used_up(tmp_path):
    ended = dtrun(tmp_path, SUM, "--simulate", "4", "--explore", "3", "--verdict", "v.json")
    assert ended.code == 0 and "this is no proof: the budget is used up" in ended.err
    assert not json.loads((tmp_path / "v.json").read_text())["complete"]


def test_faults_of_the_command_line_leave_orders_alone(tmp_path):
    ended = dtrun(tmp_path, SUM, "--simulate", "3", "--explore", "2", "--delay", "1@send:1=1ms")
    assert ended.code == 0 and "orders of messages are not tried" in ended.err


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--replay", "sometimes"], "an order as --explore tells it is needed"),
        (["--replay", "all:9"], "it is not the program that the order is of"),
        (["--explore", "2", "--replay", "all"], "give one of them"),
        (["--verdict", "v.json"], "it is --explore that gives one"),
    ],
)
def test_wrong_flags(tmp_path, flags, said):
    ended = dtrun(tmp_path, SUM, "--simulate", "3", *flags)
    assert ended.code == 2 and said in ended.err
