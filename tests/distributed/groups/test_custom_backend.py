"""A program's own backend: a class with PyTorch's methods that moves a group's data."""

from __future__ import annotations

import os
import pickle
import time

import numpy as np
import pytest

import disttrain as dt
from disttrain import core
from disttrain import distributed as dist
from disttrain.comm.transports import selection
from disttrain.errors import BackendError
from disttrain_launcher import launch
from support.ranks import run_ranks


class Kept(dist.Work):
    """A work that moves its data when it is waited for."""

    def __init__(self, finish=lambda: None, source=0):
        super().__init__()
        self.finish, self.source, self.label = finish, source, "kept"

    def wait(self, timeout=None):
        self.finish()
        return True

    def source_rank(self):
        return self.source


class OverStore(dist.ProcessGroup):
    """Everything goes through the store that the group was made with."""

    def __init__(self, store, rank, size, timeout=None):
        super().__init__(rank, size)
        self.store, self.calls, self.messages, self.seen = store, 0, {}, []

    def getBackendName(self):  # noqa: N802
        return "over-store"

    def _exchange(self, value):
        self.calls += 1
        self.store.set(f"{self.calls}/{self.rank()}", pickle.dumps(value))
        return [pickle.loads(self.store.get(f"{self.calls}/{r}")) for r in range(self.size())]

    def allreduce(self, tensors, opts=None):
        self.seen.append((tuple(tensors[0].shape), opts.reduceOp, opts.asyncOp))
        every = self._exchange(tensors[0].numpy().copy())
        return Kept(lambda: tensors[0].copy_(core.wrap(sum(every[1:], every[0]))))

    def broadcast(self, tensors, opts=None):
        every = self._exchange(tensors[0].numpy().copy())
        tensors[0].copy_(core.wrap(every[opts.rootRank]))

    def reduce(self, tensors, opts=None):
        every = self._exchange(tensors[0].numpy().copy())
        if self.rank() == opts.rootRank:
            tensors[0].copy_(core.wrap(sum(every[1:], every[0])))
        return Kept()

    def allgather(self, outs, ins, opts=None):
        for out, given in zip(outs[0], self._exchange(ins[0].numpy().copy()), strict=True):
            out.copy_(core.wrap(given))
        return Kept()

    def gather(self, outs, ins, opts=None):
        every = self._exchange(ins[0].numpy().copy())
        for out, given in zip(outs[0] if outs else [], every, strict=False):
            out.copy_(core.wrap(given))
        return Kept()

    def scatter(self, outs, ins, opts=None):
        every = self._exchange([t.numpy() for t in ins[0]] if ins else None)
        outs[0].copy_(core.wrap(every[opts.rootRank][self.rank()]))
        return Kept()

    def reduce_scatter(self, outs, ins, opts=None):
        every = [e[self.rank()] for e in self._exchange([t.numpy().copy() for t in ins[0]])]
        outs[0].copy_(core.wrap(sum(every[1:], every[0])))
        return Kept()

    def alltoall(self, outs, ins, opts=None):
        every = self._exchange([t.numpy().copy() for t in ins])
        for out, given in zip(outs, every, strict=True):
            out.copy_(core.wrap(given[self.rank()]))
        return Kept()

    def barrier(self, opts=None):
        self._exchange(0)
        return Kept()

    def _key(self, *pair):
        self.messages[pair] = self.messages.get(pair, 0) + 1
        return f"{pair}{self.messages[pair]}"

    def send(self, tensors, dst, tag=0):
        self.store.set(self._key(self.rank(), dst, tag), pickle.dumps(tensors[0].numpy().copy()))
        return Kept()

    def recv(self, tensors, src, tag=0):
        value = pickle.loads(self.store.get(self._key(src, self.rank(), tag)))
        tensors[0].copy_(core.wrap(value))
        return Kept()

    def recv_anysource(self, tensors, tag=0):
        self.recv(tensors, 1 - self.rank(), tag)
        return Kept(source=1 - self.rank())


def on_ranks(tmp_path, body, creator=OverStore, backend="mine", n=2, **settings):
    path = str(tmp_path / "store")

    def whole(rank):
        settings.setdefault("devices", "cpu")
        dist.Backend.register_backend("Mine", creator, **settings)
        dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=n)
        try:
            return body(rank, n)
        finally:
            dist.destroy_process_group()

    return run_ranks(n, whole)


def filled(value, shape=(2, 3)):
    return dt.full(shape, float(value))


def test_every_verb_goes_through_it(tmp_path):
    def body(rank, n):
        total = sum(range(n))
        dist.all_reduce(x := filled(rank))
        assert x.tolist() == filled(total).tolist()
        work = dist.all_reduce(x := filled(rank, (4,)), async_op=True)
        assert work.label == "kept" and work.wait() and x.tolist() == [total] * 4
        assert dist.group.WORLD.seen == [
            ((2, 3), dist.ReduceOp.SUM, False), ((4,), dist.ReduceOp.SUM, True),
        ]  # fmt: skip
        dist.broadcast(x := filled(rank), 1)
        assert x.sum().item() == 6
        dist.reduce(x := filled(rank), 0)
        assert x[0, 0].item() == (total if rank == 0 else rank)
        dist.all_gather(xs := [filled(0) for _ in range(n)], filled(rank))
        assert [t[0, 0].item() for t in xs] == list(range(n))
        dist.all_gather_into_tensor(x := dt.zeros(2 * n), filled(rank, (2,)))
        assert x.tolist() == [r for r in range(n) for _ in range(2)]
        dist.reduce_scatter(x := filled(0), [filled(r) for r in range(n)])
        assert x[0, 0].item() == n * rank
        dist.reduce_scatter_tensor(x := dt.zeros(2), dt.arange(2.0 * n))
        assert x.tolist() == [2 * n * rank, 2 * n * rank + n]
        dist.all_to_all(xs := [dt.zeros(1) for _ in range(n)], [filled(rank, (1,))] * n)
        assert [t.item() for t in xs] == list(range(n))
        dist.all_to_all_single(x := dt.zeros(n), dt.arange(float(n)) + 10 * rank)
        assert x.tolist() == [10 * r + rank for r in range(n)]
        uneven = dt.zeros(3 if rank == 0 else 1)
        splits = [([1, 2], [1, 1]), ([1, 0], [2, 0])][rank]
        dist.all_to_all_single(uneven, filled(rank, (2,)), *splits)
        assert uneven.tolist() == [[0, 1, 1], [0]][rank]
        xs = [filled(0) for _ in range(n)] if rank == 0 else None
        dist.gather(filled(rank), xs, 0)
        assert rank or [t[0, 0].item() for t in xs] == list(range(n))
        dist.scatter(x := filled(0), [filled(r) for r in range(n)] if rank else None, 1)
        assert x[0, 0].item() == rank
        if rank == 0:
            dist.send(filled(7), 1)
            dist.isend(filled(8), 1, tag=3).wait()
        else:
            assert dist.recv(x := filled(0), 0) == 0 and x[0, 0].item() == 7
            assert dist.recv(x, None, tag=3) == 0 and x[0, 0].item() == 8
        dist.all_reduce_coalesced(xs := [filled(rank), filled(1, (1,))])
        assert xs[0][0, 0].item() == total and xs[1].item() == n
        dist.barrier()

    on_ranks(tmp_path, body)


def test_what_stands_on_the_verbs_works(tmp_path):
    def body(rank, n):
        dist.all_gather_object(found := [None] * n, {"rank": rank})
        assert found == [{"rank": r} for r in range(n)]
        dist.broadcast_object_list(found, 1)
        model = dist.DistributedDataParallel(dt.nn.Linear(2, 1))
        model(filled(rank, (1, 2))).sum().backward()
        assert model.module.weight.grad.tolist() == [[0.5, 0.5]]
        split = dist.split_group(None, [[0, 1]])
        for group in (dist.new_group([1, 0]), dist.new_group([1]), split):
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.all_reduce(x := filled(1), group=group)
                assert x[0, 0].item() == group.size()
        other = dist.new_group([0, 1], backend="gloo")
        assert dist.get_backend(other) == "gloo" and other.transport.kind == "shm"
        dist.all_reduce(x := filled(rank), group=other)
        assert x[0, 0].item() == 1

    on_ranks(tmp_path, body)


def test_programs_find_it_by_its_name(tmp_path):
    def body(rank, n):
        assert dist.Backend.MINE == "mine" and "mine" in dist.Backend.backend_list
        assert dist.Backend._plugins["MINE"].creator_fn is OverStore
        assert dist.Backend.backend_capability["mine"] == ["cpu"]
        assert dist.is_backend_available("mine") and dist.get_backend() == "mine"
        assert str(dist.BackendConfig("mine")) == "cpu:mine"
        world = dist.group.WORLD
        assert (world.rank(), world.size(), world.name()) == (rank, n, "mine")
        mine = world._get_backend(dt.device("cpu"))
        assert isinstance(mine, OverStore) and mine.name() == "over-store"
        assert mine.store is world.store  # what a group has not is looked for there
        world.allreduce([x := filled(rank)], dist.AllreduceOptions()).wait()
        assert x[0, 0].item() == 1

    on_ranks(tmp_path, body)
    with pytest.raises(AttributeError, match="MINE"):
        _ = dist.Backend.MINE  # the ranks' own


def test_options_of_the_extended_form_and_objects_of_any_class(tmp_path):
    class Plain:
        def __init__(self, told, pg_options):
            self.told = told

        def broadcast(self, tensors, opts):
            tensors[0].fill_(self.told.group_rank)

        def shutdown(self):
            (tmp_path / f"left {self.told.group_rank}").touch()

    def body(rank, n):
        told = dist.group.WORLD.told
        assert (told.group_rank, told.group_size) == (rank, n)
        assert told.global_ranks_in_group == [0, 1] and told.timeout.total_seconds() == 1800
        dist.broadcast(x := filled(9), 0)
        assert x[0, 0].item() == rank
        with pytest.raises(BackendError, match=r"backend 'mine' cannot do it.*no method allreduce"):
            dist.all_reduce(x)
        return True

    assert on_ranks(tmp_path, body, Plain, "cpu:mine", extended_api=True) == [True, True]
    assert len(list(tmp_path.glob("left *"))) == 2


def test_under_a_launcher_it_meets_through_the_launchers_store():
    def whole():
        dist.Backend.register_backend("mine", OverStore, devices=["cpu"])
        dist.init_process_group("mine")
        dist.all_reduce(x := filled(1))
        assert x[0, 0].item() == 2
        dist.destroy_process_group()

    launch(whole, 2)


def test_simulated_ranks_get_the_simulated_network():
    def whole():
        dist.Backend.register_backend("mine", OverStore, devices=["cpu"])
        dist.init_process_group("mine")
        dist.all_reduce(x := filled(1))
        assert x[0, 0].item() == 2 and dist.group.WORLD.transport.kind != "plugged"
        dist.destroy_process_group()

    dist.simulate(whole, 2)


def test_names_that_are_taken_and_devices_that_are_not_said():
    with pytest.raises(BackendError, match="none of gloo, shm"):
        dist.Backend.register_backend("GLOO", OverStore, devices=["cpu"])
    with pytest.raises(BackendError, match="needed is a name of"):
        dist.Backend.register_backend("a b", OverStore, devices=["cpu"])

    def body(rank):
        with pytest.warns(UserWarning, match="Device capability of other unspecified"):
            dist.Backend.register_backend("other", OverStore)
        dist.Backend.register_backend("third", OverStore, devices=["privateuseone"])
        assert selection.parse("other").config == "cpu:other,cuda:other"
        assert dist.Backend.default_device_backend_map["privateuseone"] == "third"
        assert dist.Backend.default_device_backend_map["cpu"] == "gloo"

    run_ranks(1, body)
    assert np.array_equal(np.array(selection.parse("gloo").pairs)[:, 1], ["gloo", "gloo"])


def begin_late(late):
    dist.Backend.register_backend("at_the_end", OverStore, devices=["cpu"])
    if int(os.environ["RANK"]) == late:
        time.sleep(1)
    dist.init_process_group("at_the_end")
    return dist.get_rank()


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_program_may_end_as_soon_as_its_group_is_there(late):
    """Rank 0, whose process has the store, is the last to go."""
    assert launch(lambda: begin_late(late), 3) == [0, 1, 2]
