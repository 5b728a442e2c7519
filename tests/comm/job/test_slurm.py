"""What Slurm's variables say: where tasks meet, and how many of them are here."""

from __future__ import annotations

import pytest

from disttrain.comm.job.slurm import LOOPBACK, first_node, meeting_place, tasks_here

STEP = {"SLURM_STEP_NODELIST": "n[01-03],m4", "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n01", "n01"), ("n01,n02", "n01"), ("n[01-03,7],m4", "n01"), ("n[7,9]", "n7"),
        ("r[1-2]-ib", "r1-ib"), ("", ""),
    ],
)  # fmt: skip
def test_the_first_node_of_a_list(nodes, first):
    assert first_node(nodes) == first


def test_a_step_meets_on_its_first_node():
    place = meeting_place(STEP)
    assert place is not None and place[0] == "n01"
    assert meeting_place({**STEP, "SLURM_STEP_NUM_NODES": "1"}) == (LOOPBACK, place[1])


def test_steps_of_a_job_meet_apart():
    ports = {meeting_place({**STEP, "SLURM_STEP_ID": str(i)})[1] for i in range(50)}
    assert len(ports) == 50 and min(ports) >= 15000 and max(ports) < 30000


@pytest.mark.parametrize("name", STEP)
def test_outside_of_a_step_there_is_no_place(name):
    assert meeting_place({k: v for k, v in STEP.items() if k != name}) is None
    assert meeting_place({**STEP, "SLURM_STEP_ID": "batch"}) is None


@pytest.mark.parametrize(
    ("counts", "node", "here"),
    [
        ("4", "0", 4), ("2(x3),1", "2", 2), ("2(x3),1", "3", 1), ("2,5,1", "1", 5),
        ("2(x3)", "3", None), ("", "0", None), ("2", "", None),
    ],
)  # fmt: skip
def test_tasks_of_this_node(counts, node, here):
    env = {"SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_NODEID": node}
    assert tasks_here(env) == here
