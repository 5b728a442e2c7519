"""All stores do the same; the one with a listener stands up to strangers and to the greedy."""

from __future__ import annotations

import gc
import os
import random
import socket
import stat
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from disttrain.comm.store import (
    FileStore,
    HashStore,
    Limits,
    PrefixStore,
    Store,
    StoreServer,
    TCPStore,
    hello,
)
from disttrain.comm.store.table import GET, POP, PUSH, SET, Table, decode, encode
from disttrain.errors import QueueEmptyError, StoreError, WaitTimeout
from support.ranks import run_ranks

TOKEN = bytes(range(32))


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    if request.param == "file":
        made = FileStore(tmp_path / "store", 1)
    elif request.param == "tcp":
        made = TCPStore("localhost", 0, 1, is_master=True)
    else:
        made = HashStore() if request.param == "hash" else PrefixStore("p", HashStore())
    yield made
    made.close()


def test_set_get_check_delete(store):
    own = store.num_keys()  # TCP and file stores keep one for themselves, as PyTorch's do
    store.set("a", "text")
    store.set("b", b"\x00\xff")
    assert (store.get("a"), store.get("b")) == (b"text", b"\x00\xff")
    assert store.check(["a", "b"]) and not store.check(["a", "c"])
    assert store.num_keys() == own + 2
    assert store.delete_key("a") and not store.delete_key("a")
    assert store.num_keys() == own + 1


def test_add_counts_and_stays_readable(store):
    assert [store.add("n", 3), store.add("n", -5), store.add("n")] == [3, -2, -1]
    assert store.get("n") == b"-1"
    store.set("word", "x")
    with pytest.raises(StoreError, match="whole number"):
        store.add("word", 1)


def test_compare_set(store):
    assert store.compare_set("k", "", "one") == b"one"
    assert store.compare_set("k", "two", "three") == b"one"
    assert store.compare_set("k", "one", "two") == b"two"
    assert store.get("k") == b"two"
    assert store.compare_set("absent", "x", "y") == b"x" and not store.check(["absent"])


def test_append_and_many_at_once(store):
    store.append("log", "a")
    store.append("log", "b")
    store.multi_set(["x", "y"], ["1", b"2"])
    assert store.multi_get(["y", "x", "log"]) == [b"2", b"1", b"ab"]
    with pytest.raises(StoreError, match="2 keys and 1 values"):
        store.multi_set(["x", "y"], ["1"])


def test_waiting_ends_at_the_deadline_and_names_the_key(store):
    with pytest.raises(WaitTimeout, match="never'"):
        store.get("never", 0.01)
    store.set("a", "1")
    with pytest.raises(WaitTimeout, match="never'"):
        store.wait(["a", "never"], 0.01)
    assert store.get("a") == b"1"  # and the store works on


def test_waiting_ends_when_another_thread_sets_the_key(store):
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(store.multi_get, ["first", "second"], 10)
        store.set("first", "1")
        store.set("second", "2")
        assert later.result() == [b"1", b"2"]


def test_counting_from_many_threads_loses_nothing(store):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.add("n", 1), range(100)))
    assert store.get("n") == b"100"


def test_limits_are_named(store):
    own = store.num_keys()
    with pytest.raises(StoreError, match="value_bytes"):
        store.set("big", bytes((1 << 20) + 1))
    with pytest.raises(StoreError, match="key_bytes"):
        store.set("k" * 2000, "v")
    with pytest.raises(StoreError, match="bytes or str"):
        store.set("k", 3)
    assert store.num_keys() == own


def test_total_size_and_keys_per_request_are_bounded():
    store = HashStore(limits=Limits(total_bytes=1000, keys_per_request=5))
    with pytest.raises(StoreError, match=r"total_bytes"):
        for i in range(100):
            store.set(f"k{i}", bytes(50))
    held = store.num_keys()
    assert 0 < held < 10
    store.delete_key("k0")
    store.set("other", bytes(40))
    with pytest.raises(StoreError, match="keys_per_request"):
        store.check([str(i) for i in range(6)])


# --- between processes ---------------------------------------------------------------------------


def _meet(store):
    """Every rank says its name and hears the others'."""
    me = store.add("ranks", 1)
    store.set(f"name/{me}", str(me))
    return b"".join(store.multi_get([f"name/{i}" for i in (1, 2, 3)], 10))


def test_file_store_between_processes(tmp_path):
    path = tmp_path / "store"

    def body(rank):
        with closing(FileStore(path, 3)) as store:
            said = _meet(store)
            store.add("done", 1)
            while store.get("done") != b"3":
                pass
            return said

    assert run_ranks(3, body) == [b"123"] * 3
    assert not path.exists()  # the last one removed it


def test_file_store_is_private_and_survives_a_torn_entry(tmp_path):
    path = tmp_path / "store"
    FileStore(path).set("a", "1")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with open(path, "ab") as f:
        f.write(struct.pack("<I", 500) + b"half an entry of a killed writer")
    store = FileStore(path)
    assert store.get("a") == b"1"
    store.set("b", "2")
    assert FileStore(path).multi_get(["a", "b"]) == [b"1", b"2"]
    other = tmp_path / "novel"
    other.write_text("It was a dark and stormy night")
    with pytest.raises(StoreError, match="not a store"):
        FileStore(other).get("a", 0)


def test_tcp_store_between_processes_without_a_launcher(tmp_path):
    """The token goes over a Unix socket of this user; the port is found out through a file."""

    def body(rank):
        if rank == 0:
            store = TCPStore("localhost", 0, 3, True, wait_for_workers=False)
            (tmp_path / "tmp").write_text(str(store.port))
            os.rename(tmp_path / "tmp", tmp_path / "port")
        else:
            while not (tmp_path / "port").exists():
                pass
            store = TCPStore("localhost", int((tmp_path / "port").read_text()), 3)
        said = _meet(store)
        store.add("left", 1)
        while rank == 0 and store.get("left") != b"3":
            pass
        store.close()
        return said

    assert run_ranks(3, body) == [b"123"] * 3


def test_the_master_waits_for_its_workers():
    with pytest.raises(WaitTimeout, match="1 of 2 ranks to join"):
        TCPStore("localhost", 0, 2, is_master=True, timeout=0.05)


def test_a_client_waits_for_a_late_master():
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        with pytest.raises(WaitTimeout, match="no store of this user"):
            TCPStore("localhost", port, timeout=0.05)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(TCPStore, "localhost", port, timeout=10)
            with closing(TCPStore("localhost", port, 2, is_master=True, timeout=10)) as master:
                with closing(late.result()) as client:
                    client.set("a", "1")
                assert master.get("a") == b"1"


def test_a_port_that_is_taken_is_named():
    with closing(TCPStore("localhost", 0, 1, is_master=True)) as store:
        with pytest.raises(StoreError, match=f"{store.port}: Address already in use"):
            TCPStore("localhost", store.port, 1, is_master=True)
    with pytest.raises(StoreError, match="port 70000"):
        TCPStore("localhost", 70000)


def test_a_store_that_has_ended_is_told():
    master = TCPStore("localhost", 0, 1, is_master=True)
    client = TCPStore("localhost", master.port)
    master.close()
    with pytest.raises(StoreError, match="has ended"):
        client.get("a", 5)
    client.close()


# --- the listener and strangers ------------------------------------------------------------------


@pytest.fixture
def server():
    made = StoreServer(TOKEN, epoch=3, limits=Limits(handshake_seconds=0.2, strangers=8))
    made.start()
    yield made
    made.close()


def connect(server, **settings) -> TCPStore:
    settings = {"token": TOKEN, "epoch": 3, "timeout": 5, **settings}
    return TCPStore("127.0.0.1", server.port, **settings)


def closed(sock: socket.socket) -> bool:
    """Did the other side hang up without a word?"""
    sock.settimeout(5)
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True


def raw(server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port))


def test_token_epoch_and_job_must_fit(server):
    with closing(connect(server)) as store:
        store.set("a", "1")
    for wrong in ({"token": bytes(32)}, {"epoch": 2}, {"job_id": "another"}):
        with pytest.raises((WaitTimeout, StoreError)):
            connect(server, timeout=0.05, **wrong)
    with closing(connect(server)) as store:
        assert store.get("a") == b"1"
    with closing(connect(server, epoch=0)) as store:  # made by a program for itself
        assert store.get("a") == b"1"


def test_it_listens_on_loopback_only(server):
    assert server.host == "127.0.0.1"


def test_a_new_epoch_forgets_the_old_one():
    server = StoreServer(TOKEN, epoch=1)
    server.start()
    with closing(connect(server, epoch=1)) as old:
        old.set("a", "1")
        server.close()
        with pytest.raises(StoreError):
            old.get("a", 5)
    server = StoreServer(TOKEN, epoch=1)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [server.poll(0.005) for _ in iter(stop.is_set, True)])
    thread.start()
    with closing(connect(server, epoch=1)) as old:
        old.set("a", "1")
    stop.set()
    thread.join()
    server.reset(2)
    assert server._table.entries == {}
    server.close()


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 64,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    b"SSH-2.0-OpenSSH_9.6\r\n" + b"y" * 64,
    bytes(64),
    b"\xff" * 64,
    b"\x80\x04\x95" + b"cos\nsystem\n(S'true'\ntR." * 4,
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=["http", "tls", "ssh", "zeros", "ones", "pickle"])
def test_strangers_are_cut_off_without_a_reply(server, garbage):
    with raw(server) as s:
        s.sendall(garbage)
        assert closed(s)
    with closing(connect(server)) as store:
        assert store.num_keys() == 1  # that of the store itself


def test_silence_and_dripping_bytes_end_with_the_handshake_time(server):
    with raw(server) as silent, raw(server) as dripping:
        dripping.sendall(b"d")
        assert closed(silent) and closed(dripping)


def test_a_flood_of_strangers_does_not_keep_friends_out(server):
    flood = [raw(server) for _ in range(40)]
    with closing(connect(server)) as store:
        store.set("a", "1")
        assert store.get("a") == b"1"
    assert len(server._strangers) <= 8
    for s in flood:
        s.close()


def test_a_replayed_handshake_proves_nothing(server):
    mine = hello.client_hello(hello.job_hash(""), 3)
    key = hello.derive_key(TOKEN, "store")
    with raw(server) as s:
        s.sendall(mine)
        answer = s.recv(64, socket.MSG_WAITALL)
        proof = hello.client_proof(key, mine, answer)
        s.sendall(proof + struct.pack("<I", 5) + encode(7, [])[:5])
        assert s.recv(4, socket.MSG_WAITALL)
    with raw(server) as s:
        s.sendall(mine)
        s.recv(64, socket.MSG_WAITALL)
        s.sendall(proof)
        assert closed(s)


def test_the_servers_own_proof_reflected_proves_nothing(server):
    with raw(server) as s:
        s.sendall(hello.client_hello(hello.job_hash(""), 3))
        answer = s.recv(64, socket.MSG_WAITALL)
        s.sendall(answer[24:56])
        assert closed(s)


def test_a_client_refuses_a_server_that_knows_no_token():
    with socket.socket() as impostor:
        impostor.bind(("127.0.0.1", 0))
        impostor.listen()

        def answer():  # however often it tries: a busy machine may be late
            while True:
                peer, _ = impostor.accept()
                with peer:
                    mine = peer.recv(64, socket.MSG_WAITALL)
                    if not mine:
                        return
                    peer.sendall(hello.server_hello(bytes(32), mine))
                    assert closed(peer)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WaitTimeout, match="does not know this job's token"):
            TCPStore("127.0.0.1", impostor.getsockname()[1], token=TOKEN, timeout=0.5)
        socket.create_connection(impostor.getsockname()).close()
        thread.join(30)
        assert not thread.is_alive()


def test_announced_gigabytes_and_malformed_requests_end_the_connection(server):
    for frame in (struct.pack("<I", 1 << 31), struct.pack("<I", 3) + b"abc"):
        with closing(connect(server)) as store:
            store._idle[-1][0].send(frame)
            with pytest.raises(StoreError, match="connection broke"):
                store.get("a", 5)
    with closing(connect(server)) as store:
        assert store.num_keys() == 1  # that of the store itself


def test_decoding_arbitrary_bytes_only_ever_refuses():
    rng = random.Random(5)
    table = Table(Limits(total_bytes=10_000))
    whole = encode(SET, [b"key", b"k2"], [b"value", b"v2"])
    assert decode(whole) == (SET, [b"key", b"k2"], [b"value", b"v2"])
    refused = 0
    for _ in range(5000):
        body = bytearray(whole)
        for _ in range(rng.randrange(1, 5)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            table.apply(decode(bytes(body[: rng.randrange(len(body) + 1)])))
        except StoreError:
            refused += 1
    assert refused > 3000 and table.nbytes <= 10_000
    assert table.apply((GET, [b"nowhere"], ())) is None


class Own(Store):
    """A program's own store, with the least that PyTorch asks for."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def set(self, key, value):
        self.kept[key] = value

    def get(self, key):
        return self.kept[key]

    def compare_set(self, key, expected, desired):
        if self.kept.get(key, b"") == expected:
            self.kept[key] = desired
        return self.kept[key]


def test_a_part_of_somebodys_own_store():
    own = Own()
    store = PrefixStore("a", PrefixStore("b", own))
    assert not store.has_extended_api() and PrefixStore("p", HashStore()).has_extended_api()
    store.multi_set(["x", "y"], ["1", b"2"])
    store.append("x", "3")
    store.append("z", b"4")
    assert own.kept == {"b/a/x": b"13", "b/a/y": b"2", "b/a/z": b"4"}
    assert store.multi_get(["x", "z"]) == [b"13", b"4"]
    with pytest.raises(NotImplementedError, match="Own must define the methods"):
        store.add("n", 1)


def test_a_file_store_removes_its_file_when_nobody_uses_it(tmp_path):
    path = tmp_path / "store"
    first, second = FileStore(path, 2), FileStore(path, 2)
    first.set("k", "v")
    del first
    gc.collect()
    assert second.get("k") == b"v"
    del second
    gc.collect()
    assert not path.exists()


def test_a_file_store_may_be_made_anew_at_any_moment(tmp_path):
    """Removed by the last user while others come: what these write is never lost."""

    def body(rank):
        for k in range(60):
            store = FileStore(tmp_path / "store", 3)
            store.set(f"{rank}/{k}", b"x")
            assert store.get(f"{rank}/{k}", 5) == b"x"
            store.close()

    run_ranks(3, body)


@pytest.mark.parametrize("size", [2 << 20, 5 << 20, 40 << 20, 100 << 20])
def test_a_value_over_the_cap_is_refused_with_its_text_and_the_store_goes_on(server, size):
    with closing(connect(server)) as store:
        with pytest.raises(StoreError, match=r"value_bytes|request_bytes"):
            store.set("large", b"x" * size)
        store.set("small", "y")
        assert store.get("small") == b"y" and not store.check(["large"])


def test_queues_and_the_list_of_keys(store):
    store.set("k", "v")
    store.add("n", 1)
    own = store.num_keys()
    with pytest.raises(QueueEmptyError, match="q' is empty"):
        store.queue_pop("q", block=False)
    assert store.queue_len("q") == 0 and not store.check(["q"])
    store.queue_push("q", "first")
    store.queue_push("q", b"\x00")
    store.wait(["q", "k"])
    assert store.check(["q"]) and store.queue_len("q") == 2
    assert store.num_keys() == own and store.list_keys() == ["k", "n"]
    assert not store.delete_key("q")
    assert [store.queue_pop("q"), store.queue_pop("q", block=False)] == [b"first", b"\x00"]
    assert not store.check(["q"])
    store.queue_push("k", "beside")
    assert (store.get("k"), store.queue_pop("k")) == (b"v", b"beside")
    store.set_timeout(0.05)
    with pytest.raises(WaitTimeout, match="q"):
        store.queue_pop("q")
    with pytest.raises(WaitTimeout, match="k"):
        store.delete_key("k")
        store.wait(["k"])
    assert store.clone().get("n") == b"1"


def test_more_keys_than_one_answer_holds(store):
    names = [f"{i:04}" for i in range(2 * Limits.keys_per_request + 1)]
    for at in range(0, len(names), 500):
        store.multi_set(names[at : at + 500], ["x"] * len(names[at : at + 500]))
    assert store.list_keys() == names


def test_each_value_of_a_queue_goes_to_one_of_many_threads(store):
    count, takers = 60, 6

    def take(i):
        store.barrier("all", takers + 1)
        return [store.queue_pop("jobs") for _ in range(count // takers)]

    with ThreadPoolExecutor(takers) as pool:
        taken = [pool.submit(take, i) for i in range(takers)]
        store.barrier("all", takers + 1)
        for i in range(count):
            store.queue_push("jobs", str(i))
        found = [int(v) for t in taken for v in t.result()]
    assert sorted(found) == list(range(count)) and store.queue_len("jobs") == 0


def test_a_queue_counts_against_the_limits():
    table = Table(Limits(value_bytes=10, total_bytes=300))
    with pytest.raises(StoreError, match="value_bytes"):
        table.apply((PUSH, [b"q"], [b"x" * 11]))
    for _ in range(3):
        for _ in range(2):
            table.apply((PUSH, [b"q"], [b"x"]))
        with pytest.raises(StoreError, match="total_bytes"):
            table.apply((PUSH, [b"q"], [b"x"]))
        assert [table.apply((POP, [b"q"], [])) for _ in range(3)] == [[b"x"], [b"x"], []]
    assert table.nbytes == 0


def test_what_lies_under_parts_of_parts():
    whole = HashStore()
    part = PrefixStore("a", PrefixStore("b", whole))
    part.set("k", "v")
    part.queue_push("q", "w")
    assert part._underlying_non_prefix_store is whole
    assert (whole.list_keys(), part.list_keys()) == (["b/a/k"], ["k"])
    assert whole.queue_len("b/a/q") == 1


def test_a_queue_and_a_counter_between_processes(tmp_path):
    path = tmp_path / "store"

    def work(rank):
        store = PrefixStore("p", FileStore(path, 3, timeout=20))
        for i in range(20):
            store.queue_push("q", f"{rank} {i}")
            store.add("n", 1)
        taken = [store.queue_pop("q").decode() for _ in range(20)]
        store.barrier("end", 3)
        return taken, store.queue_len("q"), store.get("n")

    found = run_ranks(3, work)
    assert sorted(v for taken, _, _ in found for v in taken) == sorted(
        f"{r} {i}" for r in range(3) for i in range(20)
    )
    assert [rest for _, *rest in found] == [[0, b"60"]] * 3
