"""What programs take from inside PyTorch's ``distributed_c10d``, and its errors, by their kinds."""

from __future__ import annotations

from datetime import timedelta

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.comm.store import FileStore, HashStore, TCPStore
from disttrain.distributed import distributed_c10d as c10d
from disttrain.errors import ConfigError, QueueEmptyError, StoreLost, WaitTimeout
from disttrain_launcher import launch

SOON = timedelta(seconds=0.05)


def stores(tmp_path):
    yield HashStore()
    yield FileStore(str(tmp_path / "store"), 1)
    yield TCPStore("localhost", 0, 1, True)


def test_a_key_that_does_not_come_is_the_stores_error(tmp_path):
    for store in stores(tmp_path):
        for part in (store, dist.PrefixStore("part", store)):
            with pytest.raises(dist.DistStoreError, match=r"wait timeout after 50ms, keys: .*a"):
                part.wait(["a"], SOON)
        store.set_timeout(SOON)
        with pytest.raises(WaitTimeout, match="keys: /b ") as error:
            store.get("b")
        assert not isinstance(error.value, dist.DistNetworkError)
        with pytest.raises(QueueEmptyError) as empty:
            store.queue_pop("q", block=False)
        assert isinstance(empty.value, dist.DistStoreError)
        store.close()


def test_who_cannot_be_reached_is_the_networks_error():
    server = TCPStore("localhost", 0, 1, True)
    client = TCPStore("localhost", server.port, None, False)
    server.close()
    with pytest.raises(dist.DistNetworkError, match="connection broke") as lost:
        client.get("a")
    assert isinstance(lost.value, StoreLost) and isinstance(lost.value, dist.DistError)
    client.close()
    with pytest.raises(dist.DistNetworkError, match="no store") as unreached:
        TCPStore("localhost", server.port, None, False, timeout=SOON)
    assert isinstance(unreached.value, WaitTimeout)
    assert not isinstance(unreached.value, dist.DistStoreError)


def names_of_a_group(rank, size):
    world = c10d._get_default_group()
    assert world is dist.group.WORLD is c10d._group_or_default_group()
    assert c10d._resolve_process_group(c10d._get_process_group_name(world)) is world
    assert c10d._get_group_size() == size and not c10d._rank_not_in_group(None)
    assert c10d._rank_not_in_group(dist.GroupMember.NON_GROUP_MEMBER)
    assert c10d._find_pg_by_ranks_and_tag("", range(size)) is world
    assert c10d._get_pg_default_device() == dt.device("cpu")
    c10d._set_pg_timeout(timedelta(seconds=25))
    assert world.timeout == 25
    store = c10d._get_default_store()
    c10d._store_based_barrier(rank, store, "here", size, timedelta(seconds=20))
    store.set(f"from {rank}", str(rank))
    assert store.get(f"from {(rank + 1) % size}") == str((rank + 1) % size).encode()
    part = c10d._get_process_group_store(world)
    assert isinstance(part, dist.PrefixStore) and part.add("n", 1) <= size


def test_names_of_groups_and_a_store_wherever_ranks_have_met():
    with pytest.raises(ValueError, match="make sure to call init_process_group"):
        c10d._get_default_group()

    def body():
        dist.init_process_group()
        names_of_a_group(dist.get_rank(), dist.get_world_size())
        dist.barrier()
        dist.destroy_process_group()

    dist.simulate(body, 1)
    dist.simulate(body, 2)
    launch(body, 2)


def test_who_does_not_come_to_a_barrier_of_a_store():
    store = HashStore()
    with pytest.raises(WaitTimeout, match=r"for 2 ranks with the name 'here'; 1 came"):
        c10d._store_based_barrier(0, store, "here", 2, SOON)
    with pytest.raises(ConfigError, match="no such group"):
        c10d._resolve_process_group("no such group")
