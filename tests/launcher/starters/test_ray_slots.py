"""What follows when agents on Ray begin, end and are lost. Pure."""

import random

import pytest

from disttrain_launcher.options import forwarding
from disttrain_launcher.starters import ray
from disttrain_launcher.starters.ray_slots import (
    GIVEN_UP,
    MOST_QUICK,
    QUICK,
    Slots,
    bundle,
    num_ranks,
)


def begun(count):
    slots = Slots(count)
    for number in slots.wanted:
        slots.started(number, 0.0)
    return slots


def test_an_agent_on_each_node():
    slots = Slots(3)
    assert slots.wanted == [0, 1, 2] and slots.running == [] and not slots.over
    slots.started(1, 0.0)
    assert slots.wanted == [0, 2] and slots.running == [1]


def test_all_well_is_code_zero_when_the_last_has_ended():
    slots = begun(2)
    slots.ended(0, 0)
    assert slots.ending and not slots.over and slots.running == [1]
    slots.ended(1, 0)
    assert slots.over and slots.code == 0


def test_the_first_bad_end_is_the_jobs():
    slots = begun(3)
    for number, code in ((2, 137), (0, 1), (1, 0)):
        slots.ended(number, code)
    assert slots.over and slots.code == 137


def test_a_lost_machine_is_replaced_and_no_failure():
    slots = begun(2)
    slots.lost(1, 100.0)
    assert slots.wanted == [1] and not slots.ending
    slots.started(1, 101.0)
    slots.ended(0, 0)
    slots.ended(1, 0)
    assert slots.over and slots.code == 0


def test_nothing_is_replaced_when_the_job_is_ending():
    slots = begun(2)
    slots.ended(0, 0)
    slots.lost(1, 100.0)
    assert slots.wanted == [] and slots.over and slots.code == 0


def test_nodes_that_never_came_do_not_keep_the_job():
    slots = Slots(4)
    slots.started(0, 0.0)
    slots.ended(0, 0)
    assert slots.over and slots.wanted == []


def test_machines_that_are_lost_at_once_again_and_again_are_given_up():
    slots, now = begun(1), 0.0
    for _ in range(MOST_QUICK):
        assert not slots.over
        now += 1.0
        slots.lost(0, now)
        slots.started(0, now)
    assert slots.over and slots.code == GIVEN_UP and "node 0" in slots.given_up


def test_machines_that_are_lost_now_and_then_are_not():
    slots, now = begun(1), 0.0
    for _ in range(10 * MOST_QUICK):
        now += QUICK + 1.0
        slots.lost(0, now)
        slots.started(0, now)
    assert not slots.over


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_job_ends_when_all_that_run_have_ended(seed):
    draw, now = random.Random(seed), 0.0
    slots = Slots(draw.randint(1, 5))
    for _ in range(200):
        now += draw.uniform(0.0, 2 * QUICK)
        if slots.wanted and draw.random() < 0.5:
            slots.started(draw.choice(slots.wanted), now)
        elif slots.running:
            number = draw.choice(slots.running)
            if draw.random() < 0.8:
                slots.lost(number, now)
            else:
                slots.ended(number, draw.choice((0, 1, 143)))
        assert not (set(slots.wanted) & set(slots.running))
        assert slots.over == (bool(slots.given_up) or (slots.ending and not slots.running))
    for number in slots.running:
        slots.ended(number, 0)
    assert slots.over or not slots.ending


MACHINES = [{"CPU": 16.0, "GPU": 8.0}, {"CPU": 16.0, "GPU": 4.0}, {"CPU": 4.0}]


@pytest.mark.parametrize(
    "nproc, nodes, needs, ranks",
    [
        ("2", 1, {"CPU": 2.0, "GPU": 2.0}, 2),
        ("8", 2, {"CPU": 8.0}, 8),
        ("2", 3, {"CPU": 2.0}, 2),
        ("gpu", 2, {"CPU": 1.0, "GPU": 4.0}, 4),
        ("auto", 3, {"CPU": 4.0}, 4),
        ("cpu", 2, {"CPU": 16.0}, 16),
        ("3", 9, {"CPU": 3.0}, 3),
    ],
)
def test_what_a_node_needs_of_its_machine(nproc, nodes, needs, ranks):
    assert bundle(nproc, nodes, MACHINES) == needs
    assert num_ranks(nproc, needs) == ranks


def test_a_word_that_no_machine_gives_a_meaning():
    with pytest.raises(ValueError, match=r"--nproc-per-node gpu: .* 3 machines"):
        bundle("gpu", 3, MACHINES)


@pytest.mark.parametrize(
    "words, env, found",
    [
        (["--cluster", "ray", "t.py"], {}, ("ray", "ray")),
        (["--cluster=ray://h:10001", "t.py"], {}, ("ray", "ray://h:10001")),
        (["t.py"], {"PET_CLUSTER": "ray"}, ("ray", "ray")),
        (["--cluster", "local", "t.py"], {"PET_CLUSTER": "ray"}, ("", "")),
        (["train_ray.py", "--cluster", "ray"], {}, ("", "")),
        (["t.py"], {}, ("", "")),
        (["--hostfile", "h", "t.py"], {}, ("hostfile", "h")),
        (["--hostfile", "h", "--backend", "mpi", "t.py"], {}, ("", "")),
        (["--hostfile", "h", "t.py"], {"PET_BACKEND": "mpi"}, ("", "")),
        (["t.py", "--hostfile", "h"], {}, ("", "")),
    ],
)
def test_who_starts_agents_is_said_to_the_launcher_not_to_the_program(words, env, found):
    assert forwarding.starter(words, env) == found


def test_an_agent_gets_the_options_that_are_its_own():
    words = ["--cluster", "ray", "--nnodes", "2:3", "--max-restarts", "1", "--rdzv-conf",
             "last_call_timeout=1", "t.py", "--nnodes", "9"]  # fmt: skip
    job = ray._parse(words, "ray")
    got = job.words("10.0.0.1:4000", 4)
    assert got[-5:] == ["--max-restarts", "1", "t.py", "--nnodes", "9"]
    flags = dict(zip(got[:-5:2], got[1:-5:2]))
    assert (flags["--nnodes"], flags["--nproc-per-node"]) == ("2:3", "4")
    assert flags["--rdzv-endpoint"] == "10.0.0.1:4000" and flags["--cluster"] == "local"
    assert flags["--rdzv-conf"] == "last_call_timeout=1,is_host=0"


@pytest.mark.parametrize(
    "word", [["--standalone"], ["--rdzv-endpoint", "h:1"], ["--simulate", "4"]], ids=lambda w: w[0]
)
def test_what_ray_decides_cannot_be_given(word, capsys):
    with pytest.raises(SystemExit):
        ray._parse(["--cluster", "ray", *word, "t.py"], "ray")
    assert f"{word[0]}: with --cluster ray" in capsys.readouterr().err
