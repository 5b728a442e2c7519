"""Jobs on several nodes with networks of their own, between which packets stop to pass."""

from __future__ import annotations

import time

import pytest

from disttrain_launcher.membership import TIMED_OUT
from support import namespaces
from support.namespaces import Wire
from support.nodes import Nodes
from support.stepping import PROGRAM, longest_gap, notes_of, verify, wait_for

pytestmark = pytest.mark.skipif(bool(why := namespaces.why_not()), reason=why or "-")

ELASTIC = ("--nnodes", "1:2", "--nproc-per-node", "2")


@pytest.fixture
def wire():
    with Wire(2) as made:
        yield made


@pytest.fixture
def job(tmp_path, wire):
    """Two nodes that step together, the first of which has the rendezvous."""
    with Nodes(tmp_path, PROGRAM, wire) as made:
        args = "0.02", str(tmp_path / "enough"), f"{tmp_path}/[ab]"
        made.start("a", *ELASTIC, args=args, host=0)
        made.start("b", *ELASTIC, "--rdzv-conf", "is_host=0", args=args, host=1)
        try:
            wait_for(folders(made), lambda notes: sum(n.world == 4 for n in notes) > 40)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{made.everything()}") from None
        yield made


def folders(job: Nodes) -> list:
    return [job.folder / name for name in "ab"]


def cut(wire: Wire, cut: bool = True) -> float:
    """Nothing passes any more; when that was."""
    for one, other in ((0, 1), (1, 0)):
        wire.block(one, other, cut)
    return time.monotonic()


def test_the_side_with_the_rendezvous_goes_on_and_the_other_one_ends(job, wire):
    cut(wire)
    wait_for(folders(job), lambda notes: sum(n.world == 2 for n in notes) > 40)
    assert job.ended("b") == TIMED_OUT
    assert "its ranks are stopped before the others can take it for lost" in job.said("b")
    assert "which has the job's rendezvous, is lost" in job.said("b")
    (job.folder / "enough").touch()
    assert job.ended("a") == 0, job.everything()
    assert verify(notes_of(folders(job))).keys() == {1, 2}


def test_a_node_that_was_away_for_a_moment_comes_back(job, wire):
    cut(wire)
    time.sleep(2.2)
    cut(wire, False)
    wait_for(folders(job), lambda notes: sum(n.world == 4 and n.generation > 1 for n in notes) > 40)
    (job.folder / "enough").touch()
    assert (job.ended("a"), job.ended("b")) == (0, 0), job.everything()
    verify(notes_of(folders(job)))


def test_a_machine_that_is_lost(job):
    when = time.monotonic()
    job.kill("b")
    wait_for(folders(job), lambda notes: sum(n.world == 2 for n in notes) > 40)
    (job.folder / "enough").touch()
    assert job.ended("a") == 0, job.everything()
    notes = notes_of(folders(job))
    verify(notes)
    print(f"without a step for {longest_gap(notes, when):.2f} s")
