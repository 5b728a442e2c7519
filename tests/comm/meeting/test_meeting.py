"""Ranks that nobody launched: what each is told when they cannot meet, at once and by name."""

import os
import re
import socket
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.job.worker_env import WorkerEnv
from disttrain.comm.store import connecting, rendezvous
from disttrain.comm.store.rendezvous import store_for
from disttrain.errors import ConfigError, StoreError, StoreUnreached, WaitTimeout
from support.ranks import fork_ranks, free_port, run_ranks


def join(port, rank, size, timeout=30.0):
    """What a rank is told, and after how long."""
    start = time.monotonic()
    try:
        dist.init_process_group(
            "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, timeout=timeout
        )
    except ConfigError as error:
        return str(error), time.monotonic() - start, f"{socket.gethostname()}:{os.getpid()}"
    raise AssertionError("met")


@pytest.mark.parametrize(
    "places",
    [
        [(0, 3), (1, 3), (1, 3)],
        [(0, 3), (0, 3), (1, 3)],
        [(0, 2), (1, 3)],
        [(0, 3), (1, 2), (2, 3)],
    ],
    ids=str,
)
def test_processes_that_clash_are_named_to_all(places):
    port = free_port()
    said = run_ranks(len(places), lambda i: join(port, *places[i]))
    texts, who = {text for text, _, _ in said}, [me for _, _, me in said]
    assert len(texts) == 1 and sum(me in said[0][0] for me in who) == 2
    assert max(seconds for _, seconds, _ in said) < 20  # where the deadline is 30


@pytest.mark.parametrize("late", [None, 0, 1, 3])
def test_others_are_told_of_a_rank_that_is_out_of_range(late):
    """However late one of them comes."""
    port = free_port()

    def body(i):
        rank = (0, 1, 3)[i]
        time.sleep(2.0 * (rank == late))
        return join(port, rank, 3)

    said = run_ranks(3, body)
    assert all("rank=3, world_size=3" in text for text, _, _ in said)
    assert all(said[2][2] in text for text, _, _ in said[:2])


def test_a_rank_that_counts_on_a_larger_world_than_has_begun_is_told_of_both():
    port = free_port()

    def body(i):
        if i == 2:
            time.sleep(0.5)
            return join(port, 2, 3, 4.0)
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=i, world_size=2)
        time.sleep(4.0)
        dist.destroy_process_group()
        return "", 0.0, f"{socket.gethostname()}:{os.getpid()}"

    (text, seconds, me), *_ = run_ranks(3, body)[::-1]
    assert f"rank 2 ({me}) counts on a world of 3, and a world of 2 has begun here" in text
    assert seconds < 3


@pytest.mark.parametrize("is_there", [True, False])
def test_who_waits_for_a_store_says_so_and_why(monkeypatch, caplog, is_there):
    """Rank 0, to which WORLD_SIZE=1 was told, goes alone, and rank 1 waits for it."""
    monkeypatch.setattr(rendezvous, "_TELL_SECONDS", 0.3)
    port = free_port()

    def body(i):
        told = {"RANK": str(i), "WORLD_SIZE": str(1 + i), "MASTER_ADDR": "127.0.0.1"}
        for name, value in {**told, "MASTER_PORT": str(port)}.items():
            monkeypatch.setenv(name, value)
        if i == 0:
            if is_there:
                dist.init_process_group()
            time.sleep(3.0)
            return f"{socket.gethostname()}:{os.getpid()}"
        time.sleep(0.2)
        begun = time.monotonic()
        with pytest.raises(ConfigError if is_there else StoreUnreached) as error:
            dist.init_process_group(timeout=3 if is_there else 1.5)
        assert time.monotonic() - begun < 2.5
        told = [r.getMessage() for r in caplog.records]
        assert len(told) == 1 and "rank 1 of 2 waits for the store at 127.0.0.1" in told[0]
        return told[0], str(error.value)

    who, told = run_ranks(2, body)
    cause = f"Process {who} has begun with WORLD_SIZE=1" if is_there else "with another WORLD_SIZE"
    assert all(cause in text for text in told), told


def test_a_world_of_one_is_seen_until_it_ends(monkeypatch):
    port = free_port()
    monkeypatch.setenv("MASTER_PORT", str(port))

    def body(_):
        for _ in range(2):
            dist.init_process_group(rank=0, world_size=1)
            assert connecting.who_is_alone(port) == os.getpid()
            dist.destroy_process_group()
            assert connecting.who_is_alone(port) == 0

    run_ranks(1, body)


def test_others_are_told_of_a_rank_whose_environment_is_wrong(monkeypatch):
    port = free_port()

    def body(i):
        rank, size = [("0", "3"), ("1", "3"), ("-2", "3"), ("2", "three")][i]
        told = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1"}
        for name, value in {**told, "MASTER_PORT": str(port)}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError) as error:
            dist.init_process_group(timeout=30)
        return str(error.value)

    said = run_ranks(4, body)
    wrong = ("RANK=-2 and WORLD_SIZE=3", "WORLD_SIZE='three'")
    assert all(any(text in told for text in wrong) for told in said), said


def test_who_does_not_come_is_named():
    port = free_port()

    def body(rank):
        named = r"for rank 2 to come|lost the store"  # which rank 0 hosts
        with pytest.raises(WaitTimeout, match=r"rank \d of 4 .*waited 1.5 s for") as told:
            dist.init_process_group(
                init_method=f"tcp://127.0.0.1:{port}",
                rank=(0, 1, 3)[rank],
                world_size=4,
                timeout=1.5,
            )
        assert re.search(named if rank else "for rank 2 to come", str(told.value))

    run_ranks(3, body)


def test_ranks_meet_again_where_another_one_hosts_the_store():
    port = free_port()

    def body(me):
        seen = []
        for i in range(6):
            dist.init_process_group(
                init_method=f"tcp://127.0.0.1:{port}", rank=(me + i) % 3, world_size=3, timeout=20
            )
            x = dt.full((3,), float(dist.get_rank()))
            dist.all_reduce(x)
            seen.append(x[0].item())
            dist.destroy_process_group()
        return seen

    assert run_ranks(3, body) == [[3.0] * 6] * 3


def test_a_rank_of_an_older_generation_is_refused():
    port = free_port()
    first = replace(WorkerEnv.inside(0, 2), master_port=port, generation=3)
    with closing(store_for("env://", first, 5.0, wait=False)) as store:
        store.set("a", "1")
        late = replace(WorkerEnv.inside(1, 2), master_port=port, generation=2)
        with pytest.raises(StoreUnreached, match="another job or generation"):
            store_for("env://", late, 1.0)
        for url, number in (("env://", 3), (f"tcp://127.0.0.1:{port}", 2)):
            with closing(store_for(url, replace(late, generation=number), 5.0)) as other:
                assert other.get("a") == b"1"


def test_a_forked_child_does_not_keep_the_port():
    """It has the listening socket, too, and lives on."""
    port = free_port()

    def body(rank):
        for _ in range(2):
            dist.init_process_group(
                init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=20
            )
            child = os.fork()
            if child == 0:
                time.sleep(20)
                os._exit(0)
            children.append(child)
            dist.barrier()
            dist.destroy_process_group()
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)

    children = []
    run_ranks(2, body)


def test_a_name_that_a_forked_child_still_has_for_a_moment_is_waited_for():
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        held.bind(f"\0disttrain-store-{os.getuid()}-{port}")
        timer = threading.Timer(0.1, held.close)
        timer.start()
        dist.TCPStore("127.0.0.1", port, 1, is_master=True).close()
        timer.join()


def test_a_port_that_another_program_has_is_named_with_its_process():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StoreError, match=rf"{port}: Address already in use by process") as told:
            dist.init_process_group(
                init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=2, timeout=30
            )
        assert f"process {os.getpid()} (" in str(told.value)
        assert not dist.is_initialized()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_host_that_nobody_knows_is_named(rank):
    with pytest.raises(StoreError, match=r"'no-such-host\.invalid' is not known"):
        dist.init_process_group(
            init_method="tcp://no-such-host.invalid:29411", rank=rank, world_size=2, timeout=30
        )
    here = context.current()
    assert (here.rank, here.world_size) == (0, 1)  # it has become none of those ranks


def test_port_zero_is_for_the_one_that_hosts():
    with pytest.raises(StoreError, match="port 0 given; 1 to 65535"):
        dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=1, world_size=2, timeout=30)
    ports = set()
    for _ in range(20):
        store = dist.TCPStore("127.0.0.1", 0, 1, True)
        other = dist.TCPStore("127.0.0.1", store.port, None, False)
        other.set("k", "v")
        ports.add(store.port)
        other.close()
        store.close()
    assert 0 not in ports


def test_an_address_of_the_newer_kind_is_one_of_this_machine():
    port = free_port()

    def body(rank):
        dist.init_process_group(
            init_method=f"tcp://[::1]:{port}", rank=rank, world_size=2, timeout=20
        )
        dist.destroy_process_group()

    run_ranks(2, body)


def test_ranks_whose_host_of_the_store_has_ended_are_told(tmp_path):
    """Rank 0 fails before the others have come."""
    port = free_port()

    def body(rank):
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)
            store.get("default/meeting/0/who/1", 20.0)
            os._exit(3)
        dist.init_process_group(
            init_method=f"tcp://127.0.0.1:{port}", rank=1, world_size=2, timeout=1.0
        )

    outcomes = fork_ranks(2, body)
    assert isinstance(outcomes[1].error, (StoreError, WaitTimeout)), outcomes
