"""Time limits of single calls, given in each way that PyTorch's programs give them."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.errors import LaunchError, WaitTimeout

pytestmark = pytest.mark.simulated

SHORT = timedelta(seconds=0.5)
SUM = dist.ReduceOp.SUM


def opts(kind, **settings):
    given = kind()
    assert given.timeout < timedelta(0)  # PyTorch's way to say: none
    for name, value in {"timeout": SHORT, **settings}.items():
        setattr(given, name, value)
    return given


def x():
    return dt.ones(2)


def xs():
    return [dt.ones(2), dt.ones(2)]


CALLS = {
    "allreduce opts": lambda g: g.allreduce([x()], opts(dist.AllreduceOptions)).wait(),
    "allreduce": lambda g: g.allreduce(x(), SUM, SHORT).wait(),
    "allreduce future": lambda g: g.allreduce(x(), timeout=SHORT).get_future().wait(),
    "allreduce coalesced": lambda g: g.allreduce_coalesced(
        xs(), opts(dist.AllreduceCoalescedOptions)
    ).wait(),
    "broadcast opts": lambda g: g.broadcast([x()], opts(dist.BroadcastOptions, rootRank=1)).wait(),
    "broadcast": lambda g: g.broadcast(x(), 1, SHORT).wait(),
    "reduce opts": lambda g: g.reduce([x()], opts(dist.ReduceOptions)).wait(),
    "reduce": lambda g: g.reduce(x(), 0, SUM, SHORT).wait(),
    "allgather": lambda g: g.allgather(xs(), x(), timeout=SHORT).wait(),
    "allgather base": lambda g: g._allgather_base(
        dt.ones(4), x(), opts(dist.AllgatherOptions)
    ).wait(),
    "gather": lambda g: g.gather([xs()], [x()], opts(dist.GatherOptions)).wait(),
    "scatter": lambda g: g.scatter(x(), [], 1, SHORT).wait(),
    "reduce_scatter": lambda g: g.reduce_scatter(x(), xs(), SUM, SHORT).wait(),
    "reduce_scatter base": lambda g: g._reduce_scatter_base(
        x(), dt.ones(4), opts(dist.ReduceScatterOptions)
    ).wait(),
    "alltoall": lambda g: g.alltoall(xs(), xs(), opts(dist.AllToAllOptions)).wait(),
    "alltoall base": lambda g: g.alltoall_base(x(), x(), [], [], opts(dist.AllToAllOptions)).wait(),
    "barrier opts": lambda g: g.barrier(opts(dist.BarrierOptions)),
    "barrier": lambda g: g.barrier(timeout=SHORT),
    "dist.barrier": lambda g: dist.barrier(g, timeout=SHORT),
    "dist.barrier async": lambda g: dist.barrier(g, async_op=True, timeout=SHORT).wait(),
    "wait": lambda g: g.allreduce([x()]).wait(SHORT),
    "irecv": lambda g: dist.irecv(x(), 1, group=g).wait(SHORT),
    "monitored": lambda g: dist.monitored_barrier(g, SHORT),
    "set_timeout": lambda g: (g.set_timeout(SHORT), dist.all_reduce(x(), group=g)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_up_at_its_own_limit(name):
    seen = []

    def body():
        dist.init_process_group(timeout=timedelta(seconds=60))
        group = dist.new_group()
        if dist.get_rank() == 1:
            context.sleep(5)
            return
        start = context.now()
        with pytest.raises(WaitTimeout) as error:
            CALLS[name](group)
        seen.append((error.value, context.now() - start))  # virtual time

    with contextlib.suppress(LaunchError):  # that rank 1 has made fewer calls is told at the end
        dist.simulate(body, 2)
    [(error, seconds)] = seen
    assert isinstance(error, RuntimeError) and isinstance(error, dist.DistError)
    assert 0.4 < seconds < 3  # a sender's grace comes on top


def test_a_limit_is_of_one_call_and_none_where_it_is_zero():
    def body():
        dist.init_process_group(timeout=timedelta(seconds=60))
        late = dist.get_rank() * 2.0
        context.sleep(late)
        t = x()
        dist.group.WORLD.allreduce(t, SUM, timedelta(seconds=3)).wait()
        context.sleep(late)
        work = dist.all_reduce(t, async_op=True)
        assert work.wait(timedelta(0)) and work.is_completed()
        context.sleep(late)
        dist.barrier(timeout=timedelta(seconds=3))
        context.sleep(late * 5)
        dist.barrier()  # longer than any limit before
        assert t.tolist() == [4.0, 4.0]
        dist.destroy_process_group()

    dist.simulate(body, 2)
