"""What programs for PyTorch call on groups, works and operators, and how groups are divided."""

import datetime
from urllib.parse import parse_qs, urlsplit

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.errors import CommError, ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

N = 4


def test_the_methods_of_a_group():
    def body():
        g, me = dist.group.WORLD, dist.get_rank()
        assert (g.rank(), g.size(), g.group_desc, g.name()) == (me, N, "undefined", g.backend)
        x = dt.full((3,), me + 1.0)
        assert g.allreduce(x).wait() is True and x.tolist() == [10.0] * 3
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.MAX
        x = dt.full((3,), float(me))
        g.allreduce([x], opts).wait(datetime.timedelta(seconds=9))
        assert x.tolist() == [3.0] * 3
        x = dt.full((2,), float(me))
        g.broadcast([x], 2).wait()
        assert x.tolist() == [2.0] * 2
        x = dt.full((2,), float(me))
        g.reduce(x, 1).wait()
        assert x.tolist() == [6.0 if me == 1 else float(me)] * 2
        outs = [dt.zeros(1) for _ in range(N)]
        g.allgather([outs], [dt.full((1,), float(me))]).wait()
        assert [t.item() for t in outs] == [0.0, 1.0, 2.0, 3.0]
        g.gather([outs] if me == 0 else [], [dt.full((1,), me + 5.0)], 0).wait()
        assert [t.item() for t in outs] == [5.0, 6.0, 7.0, 8.0] or me
        part = dt.zeros(1)
        g.scatter([part], [outs] if me == 0 else [], 0).wait()
        assert part.item() == 5.0 + me
        g.reduce_scatter(part, [dt.full((1,), float(r)) for r in range(N)]).wait()
        assert part.item() == N * me
        outs = [dt.zeros(1) for _ in range(N)]
        g.alltoall(outs, [dt.full((1,), 10.0 * me + r) for r in range(N)]).wait()
        assert [t.item() for t in outs] == [10.0 * r + me for r in range(N)]
        flat = dt.zeros(N)
        g._allgather_base(flat, dt.full((1,), float(me))).wait()
        assert flat.tolist() == [0.0, 1.0, 2.0, 3.0]
        sent = g.send([dt.full((2,), float(me))], (me + 1) % N, 3)
        got = dt.zeros(2)
        work = g.recv([got], (me - 1) % N, 3)
        work.wait()
        sent.wait()
        assert work.source_rank() == (me - 1) % N == got[0].item() and work.is_success()
        assert work.result() == [got] and g.barrier().wait() is not False

    on_ranks(body, N)


def test_a_work_is_what_pytorch_gives():
    def body():
        x = dt.ones(2)
        work = dist.all_reduce(x, async_op=True)
        assert work.wait(timeout=datetime.timedelta(seconds=5)) is True
        assert work.is_completed() and work.is_success() and work.exception() is None
        assert work.result()[0] is x and work.get_future().wait()[0] is x
        other = dist.irecv(x, (dist.get_rank() + 1) % 2)
        dist.isend(dt.full((2,), 7.0), (dist.get_rank() + 1) % 2).wait()
        assert other.wait() is True and x.tolist() == [7.0, 7.0]

    on_ranks(body)


@pytest.mark.parametrize("async_ops", [False, True])
def test_collectives_that_are_started_together(async_ops):
    def body():
        tensors = [dt.full((k + 1,), float(k)) for k in range(3)]
        rows, part = dt.zeros(2), dt.zeros(1)
        with dist._coalescing_manager(async_ops=async_ops) as manager:
            for t in tensors:
                assert dist.all_reduce(t) is None
            dist.all_gather_into_tensor(rows, dt.full((1,), float(dist.get_rank())))
            dist.reduce_scatter_tensor(part, dt.ones(2))
        if async_ops:
            manager.wait()
        assert [t[0].item() for t in tensors] == [0.0, 2.0, 4.0]
        assert rows.tolist() == [0.0, 1.0] and part.item() == 2.0
        dist.all_reduce(rows)  # as before
        assert rows.tolist() == [0.0, 2.0]

    on_ranks(body)


def test_operators():
    op = dist.ReduceOp
    assert op(op.SUM) == op.SUM and dist._make_nccl_premul_sum(2.0) == op.PREMUL_SUM(2.0)
    assert [dist.supports_complex(o) for o in (op.SUM, op.AVG, op.MAX)] == [True, True, False]
    with pytest.raises(ConfigError, match="only ReduceOp"):
        op.SUM(2.0)


def test_the_rank_on_this_host(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(context.current(), "world_size", 1)  # whatever ran in this process before
    assert dist.get_node_local_rank(fallback_rank=3) == 3
    with pytest.raises(RuntimeError, match="fallback_rank"):
        dist.get_node_local_rank()
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert dist.get_node_local_rank(3) == 2


def test_ranks_may_meet_where_a_handler_of_the_program_says():
    store = dist.HashStore()

    def handler(url, timeout=None, **more):
        asked = parse_qs(urlsplit(url).query)
        yield store, int(asked["rank"][0]), int(asked["world_size"][0])

    def body():
        dist.register_rendezvous_handler("mine", handler)
        with pytest.raises(CommError, match="already registered"):
            dist.register_rendezvous_handler("mine", handler)
        found = next(iter(dist.rendezvous("mine://here", 1, 3)))
        assert found == (store, 1, 3)
        with pytest.raises(RuntimeError, match="No rendezvous handler"):
            dist.rendezvous("other://")

    dist.simulate(body, 1)
    with pytest.raises(RuntimeError, match="No rendezvous handler"):
        dist.rendezvous("mine://here", 1, 3)


def test_the_url_may_say_who_this_is():
    dist.init_process_group("gloo", "tcp://127.0.0.1:1?rank=0&world_size=1")
    assert dist.get_world_size() == 1
    dist.destroy_process_group()


def test_the_store_of_a_group_is_a_part_of_what_the_ranks_have_met_through():
    whole = dist.HashStore()

    dist.init_process_group("gloo", store=whole, rank=0, world_size=1)
    try:
        world, other = dist.group.WORLD, dist.new_group([0])
        dist._get_process_group_store(world).set("k", "world")
        store = dist._get_process_group_store(other)
        store.set("k", "other")
        assert dist._get_process_group_store(world).get("k") == b"world"
        assert store._underlying_non_prefix_store is whole
    finally:
        dist.destroy_process_group()
