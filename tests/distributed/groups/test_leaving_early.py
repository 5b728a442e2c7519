"""Ranks that leave a group while another one is elsewhere, and may never come."""

from __future__ import annotations

import time

import numpy as np
import pytest

from disttrain import core
from disttrain import distributed as dist
from disttrain.comm.transports.shm import transport as shm
from disttrain.errors import CollectiveMismatch
from support.ranks import run_ranks


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(shm, "_PATIENCE", (0.2, 0.2))


def group(rank, tmp_path, size=3):
    method = f"file://{tmp_path}/group"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    t = core.wrap(np.ones(3))
    dist.all_reduce(t)
    return t.array.tolist()


def test_who_leaves_does_not_wait_for_ever_for_a_rank_that_is_elsewhere(tmp_path):
    def body(rank):
        out = group(rank, tmp_path)
        if rank == 2:  # comes when the others have left
            while len(list(tmp_path.glob("left*"))) < 2:
                time.sleep(0.01)
        dist.destroy_process_group()
        (tmp_path / f"left{rank}").touch()
        return out

    assert run_ranks(3, body) == [[3.0] * 3] * 3


def test_a_rank_may_never_leave_and_groups_of_some_are_left_alike(tmp_path):
    def body(rank):
        group(rank, tmp_path)
        part = dist.new_group([0, 1])
        if rank < 2:
            t = core.wrap(np.ones(1))
            dist.all_reduce(t, group=part)
        if rank == 0:
            dist.destroy_process_group(part)
            (tmp_path / "left").touch()
        while not (tmp_path / "left").exists():
            time.sleep(0.01)
        return True

    assert run_ranks(3, body) == [True] * 3


@pytest.mark.parametrize("verb", ["sum", "large", "later", "gather", "scatter", "reduce"])
def test_what_comes_after_the_others_have_left_is_an_error_and_no_number(tmp_path, verb):
    def body(rank):
        group(rank, tmp_path, 2)
        if rank:
            while not (tmp_path / "left").exists():
                time.sleep(0.01)
            with pytest.raises(CollectiveMismatch, match="rank 0 called nothing more: it has left"):
                late(verb)
            with pytest.raises(CollectiveMismatch, match="number of calls"):
                dist.destroy_process_group()
        else:
            dist.destroy_process_group()
            (tmp_path / "left").touch()
        return True

    assert run_ranks(2, body) == [True] * 2


def late(verb):
    t = core.wrap(np.ones(1_000_000 if verb == "large" else 3))
    if verb == "later":
        dist.all_reduce(t, async_op=True).wait()
    elif verb == "gather":
        dist.all_gather([core.wrap(np.ones(3)) for _ in range(2)], t)
    elif verb == "scatter":
        dist.scatter(t, None, src=0)
    elif verb == "reduce":
        dist.reduce(t, 1)
    else:
        dist.all_reduce(t)


@pytest.mark.parametrize("size", [3, 400_000])
@pytest.mark.parametrize("sent", ["send", "isend", "broadcast", "all_reduce"])
def test_what_was_called_before_leaving_reaches_who_is_late(tmp_path, sent, size):
    def body(rank):
        group(rank, tmp_path, 2)
        t = core.wrap(np.full(size, rank + 1.0))
        if rank:
            end = time.monotonic() + 0.4  # longer than the others' patience
            while time.monotonic() < end and not (tmp_path / "left").exists():
                time.sleep(0.01)
        if sent == "broadcast":
            dist.broadcast(t, 0)
        elif sent == "all_reduce":
            work = dist.all_reduce(t, async_op=True)
            if rank:
                work.wait()
        elif rank:
            dist.recv(t, 0)
        else:
            getattr(dist, sent)(t, 1)
        dist.destroy_process_group()
        (tmp_path / "left").touch()
        return set(t.array.tolist()) if rank else None

    assert run_ranks(2, body)[1] == {3.0 if sent == "all_reduce" else 1.0}
