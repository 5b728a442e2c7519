"""All stores do the same; the one with a listener stands up to strangers and to the greedy."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from disttrain.comm.store import (
    FileStore,
    HashStore,
    Limits,
    PrefixStore,
    Store,
    TCPStore,
)
from disttrain.comm.store.table import GET, POP, PUSH, SET, Table, decode, encode
from disttrain.errors import QueueEmptyError, StoreError, WaitTimeout
from support.ranks import run_ranks


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


# --- the listener and strangers ------------------------------------------------------------------


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
