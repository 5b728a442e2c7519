"""``same`` and ``same_step`` as programs use them."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.tensor import DTensor, Replicate, Shard
from disttrain.errors import CollectiveMismatch, ConfigError, ValuesDiffer
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def told(call=dist.barrier):
    """What the next collective finds to differ."""
    try:
        call()
    except ValuesDiffer as error:
        return str(error)
    return ""


def all_told(body, size=3):
    """The text that all ranks get."""
    first, *others = on_ranks(body, size)
    assert all(other == first for other in others)
    return first


def test_it_returns_what_it_is_given():
    def body():
        for value in (dt.ones(2), 1, "lr", None, {"a": 1}, dt.nn.Linear(2, 2)):
            seeded = dt.manual_seed(0)
            assert (
                dist.same(value if not isinstance(value, dt.nn.Module) else 3) is not ... and seeded
            )
        x = dt.ones(2)
        assert dist.same(x) is x and dist.same(None) is None
        name = dist.same("lr")
        assert name == "lr" and pickle.loads(pickle.dumps(name)) == "lr"
        assert type(pickle.loads(pickle.dumps(name))) is str
        return told()

    assert all_told(body) == ""


def test_without_a_group_nothing_is_compared():
    x = dt.ones(2)
    assert dist.same(x, name="x") is x
    with dist.same_step():
        pass
    with pytest.raises(ConfigError, match="nobody knows"):
        dist.same(object())


@pytest.mark.parametrize(
    "value, said",
    [
        (lambda r: 0.1 * (1 + (r == 1)), "rank 1 has 0.2 from .*; it differs by 0.1"),
        (lambda r: -0.0 if r == 1 else 0.0, "rank 1 has -0.0"),
        (lambda r: [1, {"lr": r == 1}], r"in \[1\]\['lr'\]"),
        (lambda r: [1] * (2 + (r == 1)), "rank 1 has a list of 3"),
        (lambda r: dt.arange(100.0) + (r == 1), r"rank 1 has float32\[100\].*about .* \(norm\)"),
        (lambda r: dt.ones(2 + (r == 1)), r"rank 1 has float32\[3\]"),
        (lambda r: {f"k{i}": dt.ones(2) * (1 + (i == 3 and r == 1)) for i in range(9)},
         r"in \['k3'\]"),
        (lambda r: dt.Generator().manual_seed(r == 1), "rank 1 has a Generator .* seeded with 1"),
        (lambda r: np.array([np.nan, r == 1]), "rank 1 has float64"),
    ],
)  # fmt: skip
def test_the_first_part_that_differs_is_told(value, said):
    def body():
        dist.same(0)
        dist.same(value(dist.get_rank()), name="mine")
        dist.same(dist.get_rank())
        return told()

    import re

    text = all_told(body)
    assert "value 2 of 3 since the last call" in text and "'mine'" in text
    assert re.search(said, text), text


def test_nans_equal_themselves():
    def body():
        dist.same(float("nan"))
        dist.same(dt.tensor([float("nan"), 1.0]) * (-1 if dist.get_rank() else 1) * 0 + 1)
        return told()

    assert all_told(body) == ""


def test_a_module_that_differs_and_more_values_than_are_kept():
    def body():
        net = dt.nn.Linear(3, 2)
        for p in net.parameters():
            p.data.fill_(1.0)
        if dist.get_rank() == 2:
            net.bias.data[1] = 5.0
        assert dist.same(net, name="net") is net
        first = told()
        for i in range(3000):
            dist.same(i + (i == 10 and dist.get_rank() == 1))
        return first, told()

    first, second = all_told(body)
    assert "in .bias" in first and "rank 2 has float32[2] [1.0, 5.0]" in first
    assert "one of the first 1976" in second and "barrier" in second


def test_names_are_compared_and_so_is_how_many_there_are():
    def body():
        dist.same(1, name=f"n{dist.get_rank() == 1}")
        first = told()
        for _ in range(1 + (dist.get_rank() == 1)):
            dist.same(1)
        return first, told()

    first, second = all_told(body)
    assert "rank 1 has value 'nTrue'" in first
    assert "ranks 0, 2 have nothing more after" in second


def test_groups_have_checks_of_their_own():
    def body():
        rank = dist.get_rank()
        pair = dist.new_group([0, 1])
        other = dist.new_group([1, 2])
        dist.same(rank == 2, group=pair)
        dist.same(rank == 2, group=other)
        found = [told(functools.partial(dist.barrier, g)) for g in (pair, other) if g is not None
                 and g is not dist.GroupMember.NON_GROUP_MEMBER]  # fmt: skip
        return rank, found, told()

    rows = on_ranks(body, 3)
    assert all(world == "" for _, _, world in rows)
    assert [bool(found[-1]) for _, found, _ in rows] == [False, True, True]
    assert "rank 1 has False" in rows[1][1][-1] and "rank 2 has True" in rows[1][1][-1]


def test_decorated_functions():
    def body():
        rank = dist.get_rank()

        @dist.same
        def everything(a, b=2, *rest, **more):
            return rank

        @dist.same("lr")
        def one(lr, batch):
            return lr + batch

        @dist.same("lr", "batch", result=True)
        def both(lr, *, batch=1):
            return lr * batch + (rank == 1)

        @dist.same(result=True)
        def result(x):
            return x if x < 10 else rank

        class Model:
            @dist.same
            def step(self, n):
                return n

        assert everything.__name__ == "everything"
        assert everything(1, 2, 3, c=4) == rank and one(1, rank) == 1 + rank
        assert Model().step(3) == 3 and result(rank + 0 * rank if rank > 99 else 1) == 1
        assert told() == ""
        everything(1, c=rank == 1)
        first = told()
        one(rank == 2, 0)
        second = told()
        both(1, batch=2)
        third = told()
        result(10)
        return first, second, third, told()

    first, second, third, fourth = all_told(body)
    assert "everything(c)'" in first and "rank 1 has True" in first
    assert "one(lr)'" in second and "both() result'" in third and "result() result'" in fourth


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: dist.same(1, 2), "2 values were given"),
        (lambda: dist.same("a", 2), "needed are one value, or names"),
        (lambda: dist.same("nothing")(lambda x: x), "has no argument 'nothing'; it has x"),
        (lambda: dist.same(1, group="world"), "needed is a process group"),
        (lambda: dist.same(object()), "nobody knows when it is equal"),
    ],
)
def test_wrong_use_is_told(call, said):
    def body():
        with pytest.raises(ConfigError, match=said):
            call()
        return told()

    assert all_told(body) == ""


def test_dtensors_are_compared_where_ranks_hold_the_same_part():
    def body():
        rank = dist.get_rank()
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        local = dt.full((2,), float(rank % 2))
        cut = DTensor.from_local(local, mesh, [Replicate(), Shard(0)], run_check=False)
        dist.same(cut, name="cut")
        first = [told(), told(functools.partial(dist.barrier, mesh.get_group("dp")))]
        whole = DTensor.from_local(
            dt.full((2,), float(rank == 3)), mesh, [Replicate(), Replicate()], run_check=False
        )
        dist.same(whole, name="whole")
        second = told()
        if rank == 3:
            cut.to_local().fill_(9.0)
        dist.same(cut, name="cut")
        return first, second, told(), told(functools.partial(dist.barrier, mesh.get_group("dp")))

    rows = on_ranks(body, 4)
    assert all(first == ["", ""] for first, _, _, _ in rows)
    assert all("rank 3 has float32[2] [1.0, 1.0]" in second for _, second, _, _ in rows)
    assert all(third == "" for _, _, third, _ in rows)
    assert [bool(fourth) for *_, fourth in rows] == [False, True, False, True]
    assert "rank 3 has float32[2] [9.0, 9.0]" in rows[1][3]


def test_async_works_and_objects():
    def body():
        x, rank = dt.ones(4), dist.get_rank()
        dist.same(rank == 1, name="a")
        work = dist.all_reduce(x, async_op=True)
        later = dist.all_reduce(dt.ones(2), async_op=True)
        first = told(work.wait)
        later.wait()
        dist.same(rank == 2, name="b")
        second = told(lambda: dist.all_gather_object([None] * 3, rank))
        return first, second, float(x[0]), told()

    first, second, x, last = all_told(body)
    assert "'a'" in first and "'b'" in second and x == 1.0 and last == ""


def test_threads_may_check_values():
    def body():
        def more():
            dist.same(3, name="in a thread")

        thread = threading.Thread(target=more)
        thread.start()
        thread.join()
        return told()

    assert all_told(body) == ""


def test_keys_that_differ_are_told():
    def body():
        dist.same({"a" if dist.get_rank() else "b": 1}, name="settings")
        return told()

    text = all_told(body)
    assert "ranks 1, 2 have 1 in ['a']" in text and "rank 0 has 1 in ['b']" in text


def test_functions_of_all_kinds_are_decorated():
    def body():
        rank = dist.get_rank()

        class Many:
            @dist.same
            @staticmethod
            def static(x):
                return x

            @dist.same("x")
            @classmethod
            def of_class(cls, x):
                return cls, x

            @dist.same(result=True)
            async def later(self, x):
                return x

        assert Many.static(1) == Many().static(1) == 1 and Many.of_class(2) == (Many, 2)
        assert inspect.iscoroutinefunction(Many().later) and asyncio.run(Many().later(3)) == 3
        assert told() == ""
        Many.static(rank)
        found = [told()]
        Many.of_class(rank)
        found.append(told())
        asyncio.run(Many().later(rank))
        return [*found, told()]

    texts = all_told(body)
    assert all("rank 2 has 2" in text for text in texts)
    assert "static(x)" in texts[0] and "of_class(x)" in texts[1] and "later() result" in texts[2]


def test_a_second_default_group_begins_anew():
    def body():
        dist.same(1)
        dist.destroy_process_group()
        dist.init_process_group()
        dist.same(dist.get_rank() == 1)
        return told()

    assert "value 1 of 1" in all_told(body)


def test_steps_compare_what_ranks_do():
    def body():
        rank = dist.get_rank()
        net = dt.nn.Sequential(dt.nn.Linear(2, 2), dt.nn.ReLU())
        x, y = dt.ones(1, 2), dt.ones(2)
        found = []
        with dist.same_step():
            net(x)
            dist.all_reduce(y)
        found.append(told())
        with dist.same_step():
            net(x)
            if rank == 1:
                net[1](x)
        found.append(told())
        with dist.same_step():
            if rank == 2:
                dist.same(1)
            else:
                dist.same(1)
        found.append(told())
        step = dist.same_step()
        for i in range(3):
            dist.all_reduce(y)
            if i == 2 and rank == 0:
                net(x)
            dist.same_step()
        step.close()
        found.append(told())
        calls = dist.distributed_c10d._get_default_group()._calls
        assert type(calls.box).__name__ == "Recorder"  # as before: nobody observes any more
        net(x)
        return found

    first, second, third, fourth = all_told(body)
    assert first == ""
    assert "event 4" in second and "rank 1 has forward of a ReLU from" in second
    assert "ranks 0, 2 have nothing more" in second
    assert "event 1" in third and "ranks 0, 1 have same" in third
    assert "rank 0 has forward of a Sequential" in fourth


def test_a_step_that_fails_is_not_compared():
    def body():
        with pytest.raises(ValueError), dist.same_step():
            if dist.get_rank() == 1:
                dist.same(1, group=None)
            raise ValueError
        return True

    assert on_ranks(body, 1) == [True]


def test_the_error_is_a_mismatch_and_can_be_copied():
    def body():
        dist.same(dist.get_rank())
        try:
            dist.barrier()
        except CollectiveMismatch as error:
            return str(copy.copy(error)) == str(error), type(pickle.loads(pickle.dumps(error)))

    assert on_ranks(body, 2) == [(True, ValuesDiffer)] * 2
