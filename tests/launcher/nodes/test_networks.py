"""Jobs on several nodes with networks of their own, between which packets stop to pass."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from disttrain_launcher.plan.membership import TIMED_OUT
from disttrain_launcher.worker.processes import descendants
from support import namespaces
from support.dtrun import until
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
def job(tmp_path, wire, patience):
    """Two nodes that step together, the first of which has the rendezvous."""
    with Nodes(tmp_path, PROGRAM, wire) as made:
        args = "0.02", str(tmp_path / "enough"), f"{tmp_path}/[ab]"
        made.start("a", *ELASTIC, args=args, host=0)
        made.start("b", *ELASTIC, "--rdzv-conf", f"is_host=0,{patience}", args=args, host=1)
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


@pytest.fixture
def patience():
    return "join_timeout=600"


@pytest.mark.parametrize("patience", ["join_timeout=5"])
def test_the_side_with_the_rendezvous_goes_on_and_the_other_one_ends(job, wire):
    cut(wire)
    wait_for(folders(job), lambda notes: sum(n.world == 2 for n in notes) > 40)
    assert job.ended("b") == TIMED_OUT
    assert "its ranks are stopped before the others can take it for lost" in job.said("b")
    assert "which has the job's rendezvous, does not answer" in job.said("b")
    assert "which has the job's rendezvous, is lost" in job.said("b")
    (job.folder / "enough").touch()
    assert job.ended("a") == 0, job.everything()
    assert verify(notes_of(folders(job))).keys() == {1, 2}


def come_together_again(job, generation: int = 1, frozen: bool = False) -> None:
    """Both nodes, in a later generation than that."""

    def again(notes: list) -> bool:
        return sum(n.world == 4 and n.generation > generation for n in notes) > 40

    try:
        wait_for(folders(job), again)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{job.everything()}") from None
    (job.folder / "enough").touch()
    assert (job.ended("a"), job.ended("b")) == (0, 0), job.everything()
    verify(notes_of(folders(job)), frozen)


@pytest.mark.parametrize("seconds", [2.2, 5.0])
def test_a_node_that_was_away_comes_back(job, wire, seconds):
    cut(wire)
    time.sleep(seconds)
    cut(wire, False)
    come_together_again(job)


@pytest.mark.parametrize("stopped", ["a", "b"])
def test_a_machine_that_was_stopped_for_a_while_goes_on(job, stopped):
    """With the first node, the rendezvous."""
    whole = [job.pids[stopped], *descendants(job.pids[stopped])]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in whole:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(4.0 * (number == signal.SIGSTOP))
    come_together_again(job, frozen=True)


def test_a_first_node_that_is_started_anew_takes_up_the_others(job, wire):
    """Their generations go on, though the new rendezvous knows of none."""
    before = max(n.generation for n in notes_of(folders(job)))
    cut(wire)
    job.kill("a")
    wait_until_said(job, "b", "does not answer")
    job.start("a", *ELASTIC, args=("0.02", f"{job.folder}/enough", f"{job.folder}/[ab]"), host=0)
    wait_until_said(job, "a", "waiting for nodes")  # so it listens
    cut(wire, False)
    come_together_again(job, before)


def wait_until_said(job, name: str, text: str) -> None:
    until(lambda: text in job.said(name), f"{name}: {text}", 20)


def test_a_machine_that_is_lost(job):
    when = time.monotonic()
    job.kill("b")
    wait_for(folders(job), lambda notes: sum(n.world == 2 for n in notes) > 40)
    (job.folder / "enough").touch()
    assert job.ended("a") == 0, job.everything()
    notes = notes_of(folders(job))
    verify(notes)
    print(f"without a step for {longest_gap(notes, when):.2f} s")
