"""RRefs whose owner or user dies, is slow or has left; what they leave behind."""

import gc
import random
import threading

import pytest

from disttrain import context, rpc
from disttrain.distributed import simulate
from disttrain.errors import PeerFailed, RRefError, WaitTimeout
from disttrain.rpc.api import current_agent
from disttrain.rpc.calls import kinds
from disttrain.rpc.rref_part import part_of
from support.workers import run_workers, simulate_workers


class Thing:
    """Counts how many of its kind there are, on each worker of a simulation."""

    def __init__(self, size=0):
        self.counts = context.current().slot("things", list)
        self.counts.append(1)
        self.data = bytes(size)

    def __del__(self):
        self.counts.pop()

    def add(self, k):
        return k + 1


def things():
    return len(context.current().slot("things", list))


def keep(rref):
    context.current().slot("kept", list).append(rref)


def let_go():
    context.current().slot("kept", list).clear()


def slow(seconds):
    context.sleep(seconds)
    return Thing()


def hand_on(rref, to):
    rpc.rpc_sync(to, keep, (rref,))


def hand_back(rref):
    return [rref, rpc.RRef(Thing())]


def add_through(rref, k):
    return rref.rpc_sync().add(k)


def part():
    return part_of(current_agent())


def flat(limit=10.0):
    """Is nothing of others' kept here, and nothing here for others, soon?"""
    gc.collect()

    def empty():
        protocol = part().protocol
        return protocol.idle() and not protocol.entries

    until = context.now() + limit
    while not empty() and context.now() < until:
        context.sleep(0.05)
    protocol = part().protocol
    users = [(u.name, u.fork, u.state, u.dropped, u.children) for u in protocol.users.values()]
    return empty(), users, {name: (e.holders, e.made) for name, e in protocol.entries.items()}


@pytest.mark.simulated
def test_a_value_that_takes_too_long_cannot_be_used():
    def body(rank):
        if rank == 0:
            rref = rpc.remote("worker1", slow, (2.0,), timeout=0.5)
            with pytest.raises(WaitTimeout, match="RPC ran for more than"):
                rref._get_future().wait()
            for use in (rref.to_here, lambda: rpc.rpc_sync("worker1", keep, (rref,))):
                with pytest.raises(RuntimeError, match=r"rpc\.remote\(\) timed out"):
                    use()
            with pytest.raises(RuntimeError, match="timed out"):
                rref.rpc_sync().add(1)
            del rref
        rpc.api._barrier(["worker0", "worker1"])
        context.sleep(3.0)
        return things(), flat()[0]

    assert simulate_workers(2, body, 1) == [(0, True)] * 2


@pytest.mark.simulated
def test_slow_values_are_waited_for():
    def body(rank):
        rref = rpc.remote(f"worker{1 - rank}", slow, (1.0,))
        with pytest.raises(WaitTimeout):
            rref.to_here(timeout=0.2)
        with pytest.raises(WaitTimeout):
            rref.rpc_sync(timeout=0.2).add(1)
        assert rpc.rpc_sync(f"worker{rank}", add_through, (rref, 4)) == 5
        assert rref.rpc_sync().add(1) == 2
        del rref
        return flat()[0]

    assert simulate_workers(2, body, 2) == [True] * 2


@pytest.mark.simulated
def test_an_rref_outlives_rpc():
    def body(rank):
        theirs = rpc.remote(f"worker{1 - rank}", Thing)
        mine = rpc.RRef([rank])
        kept = context.current().slot("outlived", list)
        kept.append((theirs, mine, things))
        return True

    def rank_body():
        me = context.current().rank
        rpc.init_rpc(f"worker{me}")
        body(me)
        rpc.shutdown()
        [(theirs, mine, count)] = context.current().slots["outlived"]
        assert count() == 0 and mine.local_value() == [me]
        with pytest.raises(RuntimeError, match=r"Cannot call to_here\(\) on it after deletion"):
            theirs.to_here()
        assert theirs.owner_name() == f"worker{1 - me}" and "UserRRef" in str(theirs)
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            rpc.remote("worker0", Thing)
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            rpc.RRef(3)
        context.current().slots.pop("outlived")
        rpc.init_rpc(f"worker{me}")  # and again
        del theirs, mine
        theirs = rpc.remote(f"worker{1 - me}", Thing)
        assert str(theirs).startswith(
            f"UserRRef(RRefId = GloballyUniqueId(created_on={me}, local_i"
        )
        rpc.shutdown()
        return count()

    assert simulate(rank_body, 2, seed=3).results == [0, 0]


@pytest.mark.simulated
@pytest.mark.parametrize("ignore", [True, False])
def test_leaks_are_told_where_they_are_looked_for(ignore, monkeypatch):
    monkeypatch.setattr(rpc.api, "_delete_all_user_and_unforked_owner_rrefs", lambda: None)
    monkeypatch.setattr(rpc.api, "_ignore_rref_leak", ignore)
    told = []

    def body(rank):
        rref = rpc.remote(f"worker{1 - rank}", Thing)
        rref.rpc_sync().add(1)
        context.current().slot("kept", list).append(rref)
        try:
            rpc.shutdown()
        except RRefError as error:
            told.append(str(error))
        rpc.init_rpc(f"worker{rank}")

    # (A seed with which both look before either is gone: who is gone refers to nothing any more.)
    simulate_workers(2, body, 0)
    assert len(told) == (0 if ignore else 2)
    assert all("Leaking RRef GloballyUniqueId(created_on=" in text for text in told)


def batches_to(worker):
    return part_of(current_agent()).protocol._links[worker].seq


@pytest.mark.simulated
def test_what_nobody_waits_for_travels_together_and_soon():
    def body(rank):
        if rank:
            return 0
        rref = rpc.remote("worker1", Thing)
        for _ in range(64):
            rref.rpc_sync().add(1)  # takes a fork along, which the owner is to accept
        user = rref._handle.user
        context.wait_until(lambda: not user.children, lambda: "the last of them", 1.0)
        return rpc.rpc_sync("worker1", batches_to, (0,))

    assert 1 <= simulate_workers(2, body, 1)[0] < 32


@pytest.mark.simulated
def test_debug_info_counts():
    def body(rank):
        mine = rpc.RRef(Thing())
        assert rpc._rref_context_get_debug_info()["num_owner_rrefs"] == "0"
        rpc.rpc_sync(f"worker{1 - rank}", keep, (mine,))
        info = rpc._rref_context_get_debug_info()
        assert {k: info[k] for k in ("num_owner_rrefs", "num_forks", "num_pending_users")} == {
            "num_owner_rrefs": "1",
            "num_forks": "1",
            "num_pending_users": "0",
        }
        rpc.api._barrier(["worker0", "worker1"])
        let_go()
        del mine
        return flat()[0], things()

    assert simulate_workers(2, body, 5) == [(True, 0)] * 2


@pytest.mark.simulated
def test_handles_may_end_under_the_lock_and_in_the_collector():
    def body(rank):
        if rank == 0:
            mine = part()
            for round in range(8):
                rrefs = [rpc.remote("worker1", Thing) for _ in range(4)]
                ring = [rrefs]
                ring.append(ring)
                with mine._lock:
                    del rrefs
                    if round % 2:
                        del ring
                    gc.collect()
            other = [rpc.remote("worker1", Thing) for _ in range(20)]
            threads = [threading.Thread(target=other.pop) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            gc.collect()
        rpc.api._barrier(["worker0", "worker1"])
        gc.collect()
        return flat()[0], things()

    assert simulate_workers(2, body, 6) == [(True, 0)] * 2


@pytest.mark.simulated
def test_news_that_were_refused_are_told_again():
    refused = []

    def body(rank):
        if rank == 1:
            handlers = current_agent()._handlers
            hear = handlers[kinds.RREFS]

            def refuse_some(caller, batch):
                if len(refused) < 5:
                    refused.append(batch)
                    raise RuntimeError("not now")
                return hear(caller, batch)

            handlers[kinds.RREFS] = refuse_some
        rpc.api._barrier(["worker0", "worker1"])
        if rank == 0:
            for _ in range(3):
                rpc.remote("worker1", Thing).rpc_sync().add(1)
        rpc.api._barrier(["worker0", "worker1"])
        return flat()[0], things()

    assert simulate_workers(2, body, 8) == [(True, 0)] * 2
    assert len(refused) == 5


def work(rank, rng, steps, n):
    """Make RRefs and pass them around; some are kept elsewhere."""
    mine = []
    for _ in range(steps):
        to = f"worker{rng.randrange(n)}"
        what = rng.random()
        try:
            if what < 0.3 or not mine:
                mine.append(rpc.remote(to, Thing))
            elif what < 0.4:
                mine.append(rpc.RRef(Thing()))
            elif what < 0.6:
                rpc.rpc_async(to, keep, (rng.choice(mine),))
            elif what < 0.7:
                mine += rpc.rpc_sync(to, hand_back, (rng.choice(mine),))
            elif what < 0.8:
                rpc.rpc_sync(to, hand_on, (rng.choice(mine), f"worker{rng.randrange(n)}"))
            elif what < 0.9:
                assert rng.choice(mine).rpc_sync().add(3) == 4
            else:
                mine.pop(rng.randrange(len(mine)))
        except (PeerFailed, RRefError):
            continue


def dies_somewhere(seed, n=3):
    def rank_body():
        me = context.current().rank
        rng = random.Random(f"{seed} {me}")
        rpc.init_rpc(f"worker{me}")
        if me == seed % n:
            work(me, rng, rng.randrange(25), n)
            return None  # dies: it does not leave
        work(me, rng, 30, n)
        with pytest.raises(PeerFailed):
            rpc.rpc_sync(f"worker{seed % n}", slow, (100.0,))
        rest = {f"worker{i}" for i in range(n) if i != seed % n}
        context.sleep(1.0)
        rpc.api._barrier(rest)
        let_go()
        rpc.api._barrier(rest)
        result = flat()
        rpc.api._barrier(rest)
        left = things()
        context.sleep(1.0)
        rpc.shutdown(graceful=False)
        return result, left

    return simulate(rank_body, n, seed=seed).results


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(8))
def test_who_dies_leaves_nothing_with_the_others(seed):
    for result in dies_somewhere(seed):
        if result is not None:
            (empty, users, entries), left = result
            assert empty, (users, entries)
            assert left == 0


def test_many_rrefs_leave_both_sides_flat(tmp_path):
    def body(rank):
        if rank == 0:
            for _ in range(600):
                rpc.remote("worker1", Thing, (100,))
            one = rpc.remote("worker1", Thing)
            for _ in range(200):
                assert one.rpc_sync().add(1) == 2
                rpc.rpc_sync("worker1", hand_back, (one,))
            del one
        rpc.api._barrier(["worker0", "worker1"])
        empty = flat()[0]
        protocol = part().protocol
        late = sum(len(had._beyond) for had in protocol._had.values())
        queued = sum(len(link.queue) for link in protocol._links.values())
        return empty, things(), late, queued, len(protocol._parents), len(part()._own)

    assert run_workers(2, body, tmp_path) == [(True, 0, 0, 0, 0, 0)] * 2


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(4))
def test_a_worker_that_joins_again_is_another_one(seed):
    def stays():
        rpc.init_rpc("stays", rank=0)
        old = None
        for _ in range(3):
            context.sleep(10.0)  # the other one is here, from 5 to 15 seconds of each 20
            rref = rpc.remote("comes", Thing)
            assert rref.rpc_sync().add(1) == 2
            if old is not None:
                with pytest.raises((PeerFailed, RRefError)):
                    old.to_here()
            context.sleep(10.0)
            old = rref
        with pytest.raises(PeerFailed, match=r"comes|has left"):
            old.to_here()
        del old, rref
        result = flat()[0], things()
        rpc.shutdown()
        return result

    def comes():
        for turn in range(3):
            context.sleep(5.0)
            rpc.init_rpc("comes", rank=1)
            theirs = [rpc.remote("stays", Thing) for _ in range(5)]
            assert theirs[0].rpc_sync().add(turn) == turn + 1
            rpc.rpc_sync("stays", hand_back, (rpc.RRef(Thing()),))
            context.sleep(10.0)
            if turn % 2:
                del theirs
            rpc.shutdown()
            context.sleep(5.0)
        return True, things()

    def body():
        return stays() if context.current().rank == 0 else comes()

    assert simulate(body, 2, seed=seed).results == [(True, 0), (True, 0)]
