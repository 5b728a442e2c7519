"""Every verb on Tensors, on simulated ranks: what goes in, what each rank has afterwards."""

from datetime import timedelta

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import futures
from disttrain.errors import WaitTimeout

pytestmark = pytest.mark.simulated

N = 3


def on_ranks(fn, n=N):
    """``fn(rank)`` on ``n`` simulated ranks of one group; the results by rank."""

    def body():
        dist.init_process_group()
        try:
            return fn(dist.get_rank())
        finally:
            dist.destroy_process_group()

    return dist.simulate(body, n).results


def mine(rank, n=2):
    return dt.full((n,), float(rank + 1))


def values(tensors):
    return [t.tolist() for t in tensors]


ALL = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]


def test_all_reduce():
    def body(rank):
        total, top = mine(rank), mine(rank)
        dist.all_reduce(total)
        work = dist.all_reduce(top, dist.ReduceOp.MAX, async_op=True)
        work.wait()
        return values([total, top])

    assert on_ranks(body) == [[[6.0, 6.0], [3.0, 3.0]]] * N


@pytest.mark.parametrize("root", range(N))
def test_reduce_and_broadcast(root):
    def body(rank):
        total, copy = mine(rank), mine(rank)
        dist.reduce(total, root)
        dist.broadcast(copy, root)
        return total.tolist(), copy.tolist()

    results = on_ranks(body)
    assert results[root][0] == [6.0, 6.0]
    assert [copy for _, copy in results] == [ALL[root]] * N


@pytest.mark.parametrize("root", range(N))
def test_gather_and_scatter(root):
    def body(rank):
        outs = [dt.zeros(2) for _ in range(N)] if rank == root else None
        dist.gather(mine(rank), outs, dst=root)
        part = dt.zeros(2)
        dist.scatter(part, [mine(r) for r in range(N)] if rank == root else None, src=root)
        return None if outs is None else values(outs), part.tolist()

    results = on_ranks(body)
    assert [gathered for gathered, _ in results] == [ALL if r == root else None for r in range(N)]
    assert [part for _, part in results] == ALL


def test_all_gather():
    def body(rank):
        outs, flat = [dt.zeros(2) for _ in range(N)], dt.zeros(2 * N)
        dist.all_gather(outs, mine(rank))
        dist.all_gather_into_tensor(flat, mine(rank))
        return values(outs), flat.tolist()

    assert on_ranks(body) == [(ALL, [x for row in ALL for x in row])] * N


def test_reduce_scatter():
    def body(rank):
        a, b = dt.zeros(2), dt.zeros(2)
        dist.reduce_scatter(a, [mine(r) * (rank + 1) for r in range(N)])
        dist.reduce_scatter_tensor(b, dt.cat([mine(r) for r in range(N)]))
        return a.tolist(), b.tolist()

    assert on_ranks(body) == [([6.0 * r] * 2, [3.0 * r] * 2) for r in (1, 2, 3)]


def test_all_to_all():
    def body(rank):
        outs = [dt.zeros(1) for _ in range(N)]
        dist.all_to_all(outs, [dt.tensor([10.0 * rank + r]) for r in range(N)])
        flat = dt.zeros(N)
        dist.all_to_all_single(flat, dt.tensor([10.0 * rank + r for r in range(N)]))
        return [t.item() for t in outs], flat.tolist()

    expected = [[10.0 * source + r for source in range(N)] for r in range(N)]
    assert on_ranks(body) == [(row, row) for row in expected]


def test_all_to_all_single_with_sizes():
    def body(rank):
        """Rank r sends r + 1 elements to everyone."""
        out = dt.zeros(1 + 2 + 3)
        given = dt.full((N * (rank + 1),), float(rank))
        dist.all_to_all_single(out, given, [1, 2, 3], [rank + 1] * N)
        return out.tolist()

    assert on_ranks(body) == [[0.0, 1.0, 1.0, 2.0, 2.0, 2.0]] * N


def test_messages():
    def body(rank):
        got = dt.zeros(2)
        if rank == 0:
            dist.send(mine(0), 1, tag=4)
        elif rank == 1:
            assert dist.recv(got, 0, tag=4) == 0
        left, right = dt.zeros(2), mine(rank)
        ops = [
            dist.P2POp(dist.isend, right, (rank + 1) % N),
            dist.P2POp(dist.irecv, left, (rank - 1) % N),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return got.tolist(), left.tolist()

    results = on_ranks(body)
    assert results[1][0] == ALL[0]
    assert [left for _, left in results] == [ALL[2], ALL[0], ALL[1]]


def test_objects():
    def body(rank):
        everyone = [None] * N
        dist.all_gather_object(everyone, {"rank": rank})
        at_root = [None] * N if rank == 1 else None
        dist.gather_object(rank, at_root, dst=1)
        shared = ["a", 1.5] if rank == 2 else [None, None]
        dist.broadcast_object_list(shared, src=2)
        part = [None]
        dist.scatter_object_list(part, [(r, "x") for r in range(N)] if rank == 0 else None, src=0)
        return everyone, at_root, shared, part

    everyone = [{"rank": r} for r in range(N)]
    assert on_ranks(body) == [
        (everyone, [0, 1, 2] if r == 1 else None, ["a", 1.5], [(r, "x")]) for r in range(N)
    ]


def test_object_messages():
    def body(rank):
        got = [None, None]
        if rank == 0:
            dist.send_object_list(["hello", {1, 2}], dst=2)
        elif rank == 2:
            assert dist.recv_object_list(got, src=0) == 0
        dist.barrier()
        return got

    assert on_ranks(body)[2] == ["hello", {1, 2}]


@pytest.mark.filterwarnings("ignore:Running all_reduce on global rank")
def test_group_of_some_ranks():
    def body(rank):
        pair = dist.new_group([0, 2])
        x = mine(rank)
        dist.all_reduce(x, group=pair)  # does nothing for an outsider
        dist.monitored_barrier()
        return x.tolist(), dist.get_rank(pair), dist.get_world_size(pair)

    assert on_ranks(body) == [([4.0] * 2, 0, 2), ([2.0] * 2, -1, -1), ([4.0] * 2, 1, 2)]


def test_what_is_received_counts_as_a_write():
    """A tensor that a gradient needs cannot be overwritten by a collective unnoticed."""

    def body(rank):
        w, x = dt.ones(2, requires_grad=True), mine(rank)
        loss = (w * x).sum()
        dist.all_reduce(x)
        with pytest.raises(dt.errors.AutogradError, match="in-place"):
            loss.backward()

    on_ranks(body)


def test_several_tensors_in_one_call():
    def body(rank):
        xs = [mine(rank), dt.ones(2, 3) * (1j * rank), dt.ones(1, dtype=dt.int64), mine(rank, 0)]
        dist.all_reduce_coalesced(xs)
        outs = [[dt.zeros(2), dt.zeros(1, 2)] for _ in range(N)]
        more = [mine(rank)]
        later = [
            dist.all_gather_coalesced(outs, [mine(rank), mine(rank).reshape(1, 2)], async_op=True),
            dist.all_reduce_coalesced(more, async_op=True),
        ]
        assert futures.wait_all(later)[1][0] is more[0] and more[0].tolist() == [6.0, 6.0]
        return xs[0].tolist(), xs[1][1, 2].item(), xs[2].tolist(), [values(row) for row in outs]

    gathered = [[row, [row]] for row in ALL]
    assert on_ranks(body) == [([6.0, 6.0], 3j, [3], gathered)] * N


def test_monitored_barrier_names_who_is_missing():
    """And leaves the group usable."""

    def body(rank):
        dist.monitored_barrier(timeout=5.0)
        said = ""
        for everyone in (False, True):
            try:
                if rank == 0 or (rank == 1 and not everyone):
                    dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=everyone)
            except WaitTimeout as error:
                said += str(error)
            dist.barrier()
        total = mine(rank)
        dist.all_reduce(total)
        return said, total.tolist()

    results = on_ranks(body)
    assert [total for _, total in results] == [[6.0, 6.0]] * N
    first, second, third = (said for said, _ in results)
    assert "Rank 2 failed to pass monitoredBarrier in 1000 ms" in first
    assert "Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms" in first
    assert "Rank 1 successfully reached monitoredBarrier, but received errors" in second
    assert third == ""


def test_names_of_backends():
    assert dist.Backend("GLOO") == dist.Backend.GLOO == "gloo"
    for wrong in (None, 3, ["gloo"]):
        with pytest.raises(ValueError, match="the name of a backend is needed"):
            dist.Backend(wrong)


def test_debug_level(monkeypatch):
    monkeypatch.delenv("TORCH_DISTRIBUTED_DEBUG", raising=False)
    assert dist.get_debug_level() is dist.DebugLevel.OFF
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
    assert dist.get_debug_level() is dist.DebugLevel.DETAIL
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "loud")
    with pytest.raises(ValueError, match="OFF, INFO, or DETAIL"):
        dist.get_debug_level()


def test_rendezvous(tmp_path, monkeypatch):
    url = f"file://{tmp_path}/store?world_size=2"
    (a, rank_a, _), (b, rank_b, size) = (next(dist.rendezvous(f"{url}&rank={r}")) for r in (0, 1))
    a.set("key", "value")
    assert (rank_a, rank_b, size, b.get("key")) == (0, 1, 2, b"value")
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    meeting = dist.rendezvous("env://")
    store, rank, size = next(meeting)
    assert (rank, size) == (0, 1)
    store.close()
    with pytest.raises(ValueError, match="a second meeting"):
        next(meeting)
    with pytest.raises(RuntimeError, match="No rendezvous handler for odd"):
        dist.rendezvous("odd://")
    wrong = {
        "file://?rank=0&world_size=1": "path missing",
        "file:///tmp/x?world_size=1": "rank parameter missing",
        "tcp://127.0.0.1:1?rank=0": "size parameter missing",
        "tcp://127.0.0.1?rank=0&world_size=1": "port number missing",
    }
    for url, what in wrong.items():
        with pytest.raises(ValueError, match=what):
            next(dist.rendezvous(url))
