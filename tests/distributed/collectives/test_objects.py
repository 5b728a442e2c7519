"""Plain data between ranks: every verb, large and small, and without peers."""

from __future__ import annotations

import types

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.collectives import objects
from disttrain.errors import CommError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def thing(rank):
    """Of another size on each rank."""
    return {"rank": rank, "list": list(range(rank)), "t": dt.full((rank,), 1.5), "n": None}


def same(found, rank):
    assert found["rank"] == rank and found["list"] == list(range(rank)) and found["n"] is None
    return found["t"].tolist() == [1.5] * rank


@pytest.fixture(params=[1 << 20, 1], ids=["small", "large"], autouse=True)
def shared(request, monkeypatch):
    """From how many bytes on the group's own memory is used."""
    monkeypatch.setattr(objects, "_SHARED", request.param)


def test_all_have_everyones():
    def body():
        found = objects.all_gather(dist.group.WORLD, thing(dist.get_rank()))
        return [same(f, r) for r, f in enumerate(found)]

    assert on_ranks(body, 3) == [[True] * 3] * 3


def test_one_has_everyones():
    def body():
        found = objects.gather(dist.group.WORLD, thing(dist.get_rank()), 1)
        return found and [same(f, r) for r, f in enumerate(found)]

    assert on_ranks(body, 3) == [None, [True] * 3, None]


def test_all_have_one_and_the_root_its_own_object():
    def body():
        mine = thing(2) if dist.get_rank() == 2 else "not this"
        found = objects.broadcast(dist.group.WORLD, mine, 2)
        return same(found, 2), found is mine

    assert on_ranks(body, 3) == [(True, False), (True, False), (True, True)]


def test_each_has_its_own_of_one():
    def body():
        all_of_them = [thing(r) for r in range(3)] if dist.get_rank() == 0 else None
        return same(objects.scatter(dist.group.WORLD, all_of_them, 0), dist.get_rank())

    assert on_ranks(body, 3) == [True] * 3


def test_from_one_to_another_or_from_anybody():
    def body():
        group, rank = dist.group.WORLD, dist.get_rank()
        if rank == 0:
            first = objects.recv(group, 2, 5)
            second = objects.recv(group, None, 6)
            return first[1], same(first[0], 2), second[1], second[0]
        if rank == 1:
            objects.send(group, "from one", 0, 6)
        else:
            objects.send(group, thing(2), 0, 5)
        return None

    assert on_ranks(body, 3)[0] == (2, True, 1, "from one")


def test_a_result_does_not_share_memory_with_what_was_given():
    def body():
        mine = np.zeros(4)
        found = objects.all_gather(dist.group.WORLD, mine)[dist.get_rank()]
        mine += 1
        return np.asarray(found).tolist()

    assert on_ranks(body) == [[0.0] * 4] * 2


def test_where_the_group_has_no_memory_left_its_own_serves():
    def full(*args):
        raise CommError("no room")

    group = types.SimpleNamespace(empty=full)
    data = objects._encoded(group, [1] * 2000)
    assert objects.decode(data) == [1] * 2000


def test_a_rank_without_peers_gets_what_it_is_told_or_says_so():
    transport = types.SimpleNamespace(hears=False, kind="fake")
    group = types.SimpleNamespace(rank=0, ranks=[4, 7], name="g", transport=transport)
    assert objects.broadcast(group, None, 1, default="x") == "x"
    assert objects.scatter(group, None, 1, default="y") == "y"
    assert objects.recv(group, 1, default="z") == ("z", 1)
    assert objects.recv(group, None, default="z") == ("z", 0)
    with pytest.raises(
        CommError, match=r"group g: an object of rank 7 is needed .*\(backend fake\)"
    ):
        objects.broadcast(group, None, 1)
    with pytest.raises(CommError, match="an object of another rank is needed"):
        objects.recv(group, None)
