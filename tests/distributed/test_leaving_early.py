"""Ranks that leave a group while another one is elsewhere, and may never come."""

from __future__ import annotations

import time

import numpy as np
import pytest

from disttrain import core
from disttrain import distributed as dist
from disttrain.comm import shm
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
