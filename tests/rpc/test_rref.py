"""RRefs between workers: where values stay, how references travel, what is raised."""

import copy
import gc
import pickle

import pytest

import disttrain as dt
from disttrain import rpc
from disttrain.rpc import autograd
from disttrain.rpc.api import _all_gather
from disttrain.rpc.rref_part import part_of
from support.workers import run_workers, simulate_workers


class Counter:
    """A value with state."""

    def __init__(self, start=0):
        self.n = start

    def add(self, k):
        self.n += k
        return self.n

    def get(self):
        return self.n

    @staticmethod
    def double(k):
        return 2 * k

    @classmethod
    def named(cls):
        return cls.__name__

    @rpc.functions.async_execution
    def add_later(self, to, k):
        return rpc.rpc_async(to, int.__add__, (self.n, k)).then(lambda f: f.wait() + 1)


def add(a, b):
    return a + b


def fetch_and_add(rref, k):
    return rref.to_here() + k


def own(value):
    return rpc.RRef(value)


def owns(rref):
    return rref.is_owner(), rref.local_value()


def make_on(to, value):
    return rpc.remote(to, add, (value, 0))


def pair(to):
    return [rpc.remote(to, add, (1, 1)), {"b": (rpc.RRef(5),)}]


def confirmed(rref):
    return rref.confirmed_by_owner()


def fail(text):
    raise ValueError(text)


def kept():
    """What this worker keeps for others, and has of others."""
    part = part_of(rpc.api.current_agent())
    part.take()
    return len(part.protocol.entries), len(part.protocol.users)


def settled(limit=2000):
    """Wait until nothing is kept anywhere; what all keep, then."""
    for _ in range(limit):
        gc.collect()
        told = _all_gather(kept())
        if not any(any(counts) for counts in told.values()):
            break
    return set(told.values())


def name(rank):
    return f"worker{rank % 3}"


def everything(rank):
    """Every way of making and passing an RRef on three workers."""
    other, third = name(rank + 1), name(rank + 2)
    rref = rpc.remote(other, add, (dt.ones(2), rank))
    assert not rref.is_owner() and rref.owner_name() == other
    assert rref.owner() == rpc.get_worker_info(other)
    assert rref.to_here().tolist() == [1 + rank] * 2
    assert rpc.rpc_sync(other, fetch_and_add, (rref, 1)).tolist() == [2 + rank] * 2  # to its owner
    assert rpc.rpc_sync(third, fetch_and_add, (rref, 1)).tolist() == [2 + rank] * 2  # to another
    assert rpc.remote(third, fetch_and_add, (rref, 2)).to_here().tolist() == [3 + rank] * 2
    mine = rpc.RRef(rank)
    assert mine.is_owner() and mine.local_value() == mine.to_here() == rank
    assert mine.confirmed_by_owner()
    assert rpc.rpc_async(other, fetch_and_add, (mine, 10)).wait() == rank + 10
    here = rpc.remote(name(rank), add, (rank, 1))  # of this worker itself
    assert here.is_owner() and here.local_value() == rank + 1
    assert rpc.rpc_sync(name(rank), fetch_and_add, (here, 1)) == rank + 2
    theirs = rpc.rpc_sync(other, own, ([rank],))
    assert not theirs.is_owner() and theirs.to_here() == [rank]
    assert rpc.rpc_sync(other, owns, (theirs,)) == (True, [rank])
    assert rpc.rpc_sync(other, make_on, (third, 7)).to_here() == 7  # from one, of another
    assert rpc.rpc_sync(other, make_on, (name(rank), 8)).local_value() == 8  # comes home
    first, rest = rpc.remote(other, pair, (third,)).to_here()
    assert (first.to_here(), rest["b"][0].to_here()) == (2, 5)
    nested = rpc.remote(other, own, (rpc.RRef(3),))
    assert nested.to_here().to_here().local_value() == 3  # of an RRef to an RRef
    assert rpc.rpc_sync(third, confirmed, (rref,)) is True
    assert [r.to_here() for r in [rpc.remote(other, add, (i, 1)) for i in range(20)]] == list(
        range(1, 21)
    )
    return True


def test_every_way_of_passing_an_rref(tmp_path):
    def body(rank):
        assert everything(rank)
        return settled()

    assert run_workers(3, body, tmp_path) == [{(0, 0)}] * 3


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(6))
def test_every_way_of_passing_an_rref_simulated(seed):
    def body(rank):
        assert everything(rank)
        return settled()

    assert simulate_workers(3, body, seed) == [{(0, 0)}] * 3


def methods(rank):
    other = name(rank + 1)
    rref = rpc.remote(other, Counter, (3,))
    assert rref.rpc_sync().add(2) == 5
    assert rref.rpc_async().add(2).wait() == 7
    assert rref.remote().add(k=2).to_here() == 9
    assert rref.rpc_sync().get() == 9
    assert rref.rpc_sync().double(4) == 8 and rref.rpc_sync().named() == "Counter"
    assert rref.rpc_sync().add_later(name(rank + 2), 1) == 11
    assert rref.rpc_async().add_later(name(rank + 2), 2).wait() == 12
    assert rref.remote().add_later(name(rank), 3).to_here() == 13
    for call in (rref.rpc_sync(), rref.rpc_async(), rref.remote()):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            future = call.nothing()
            future.wait()
    assert rref._get_type() is Counter
    assert rref._get_type(blocking=False) is rref._get_type(blocking=False)
    mine = rpc.RRef(Counter(1))
    assert mine.rpc_sync().add(1) == mine.local_value().n == 2
    assert mine._get_type() is Counter
    return True


def test_methods_are_called_at_the_owner(tmp_path):
    assert run_workers(3, methods, tmp_path) == [True] * 3
    assert simulate_workers(3, methods, 1) == [True] * 3


@rpc.functions.async_execution
def add_later(to, x, y):
    return rpc.rpc_async(to, add, (x, y)).then(lambda f: f.wait() + 100)


@rpc.functions.async_execution
def not_later():
    return 3


@rpc.functions.async_execution
def fail_later():
    raise ValueError("at once")


class Later:
    @staticmethod
    @rpc.functions.async_execution
    def static(to, x):
        return rpc.rpc_async(to, add, (x, 1))

    @classmethod
    @rpc.functions.async_execution
    def of_class(cls, to, x):
        return rpc.rpc_async(to, add, (x, 2))


def run(how, to, fn, *args):
    if how == "sync":
        return rpc.rpc_sync(to, fn, args)
    return (
        rpc.rpc_async(to, fn, args).wait() if how == "async" else rpc.remote(to, fn, args).to_here()
    )


@pytest.mark.simulated
@pytest.mark.parametrize("how", ["sync", "async", "remote"])
def test_functions_that_answer_later(how):
    def body(rank):
        other, third = name(rank + 1), name(rank + 2)
        assert run(how, other, add_later, third, 1, 2) == 103
        assert run(how, other, Later.static, third, 1) == 2
        assert run(how, other, Later.of_class, third, 1) == 3
        with pytest.raises(RuntimeError, match=r"must return a torch\.futures\.Future object"):
            run(how, other, not_later)
        with pytest.raises(ValueError, match="at once"):
            run(how, other, fail_later)
        return True

    assert simulate_workers(3, body, 2) == [True] * 3


@pytest.mark.simulated
def test_what_goes_wrong_is_told():
    def body(rank):
        other = name(rank + 1)
        rref = rpc.remote(other, fail, ("expected",))
        for _ in range(2):
            with pytest.raises(ValueError, match=f"(?s){other}.*expected.*in fail"):
                rref.to_here()
        with pytest.raises(ValueError, match="expected"):
            rref._get_type()
        with pytest.raises(ValueError, match="expected"):
            rpc.rpc_sync(name(rank + 2), fetch_and_add, (rref, 1))
        with pytest.raises(TypeError):
            rpc.remote(name(rank), add, (1,)).to_here()
        with pytest.raises(RuntimeError, match=r"can't call localValue.* Call it on owner"):
            rref.local_value()
        for send in (pickle.dumps, copy.copy):
            with pytest.raises(RuntimeError, match="Can not pickle rref in python pickler"):
                send(rref)
        with pytest.raises(TypeError, match="callable"):
            rpc.remote(other, 3)
        with pytest.raises(RuntimeError, match="could not find destination"):
            rpc.remote("nobody", add)
        with pytest.raises(RuntimeError, match=r"cannot pickle|Can't pickle|local object"):
            rpc.remote(other, lambda: 1)
        del rref
        return settled()

    assert simulate_workers(3, body, 3) == [{(0, 0)}] * 3


def total(t):
    return t.sum()


def square(t):
    return (t * t).sum()


def backward(rank):
    other = name(rank + 1)
    x = dt.tensor([1.0, 2.0], requires_grad=True)
    rpc.RRef(square(x)).backward()
    assert x.grad.tolist() == [2.0, 4.0]
    with autograd.context() as where:
        rref = rpc.remote(other, square, (x,))
        rref.backward(where, retain_graph=True)
        rref.backward(where)
        assert autograd.get_gradients(where)[x].tolist() == [4.0, 8.0]
    with autograd.context() as where:  # through to_here, and from this worker
        loss = rpc.remote(other, total, (x,)).to_here() * 3
        rpc.RRef(loss).backward(where)
        assert autograd.get_gradients(where)[x].tolist() == [3.0, 3.0]
    with autograd.context() as where:
        text = rpc.remote(other, add, ("a", "b"))
        with pytest.raises(RuntimeError, match=r"RRef should contain a tensor for \.backward\(\)"):
            text.backward(where)
        with pytest.raises(RuntimeError, match="require 'dist_autograd_ctx_id' to be specified"):
            text.backward()
    with pytest.raises(RuntimeError, match="Could not find autograd context with id: 100"):
        rpc.RRef(total(x)).backward(100)
    assert x.grad.tolist() == [2.0, 4.0]
    return True


@pytest.mark.simulated
def test_backward_from_an_rref():
    assert simulate_workers(3, backward, 7) == [True] * 3


@pytest.mark.simulated
def test_an_rref_shows_which_one_it_is():
    def body(rank):
        mine, theirs = rpc.RRef(rank), rpc.remote(name(rank + 1), add, (rank, 1))
        assert str(mine) == repr(mine) and repr([mine]).startswith("[OwnerRRef(Globally")
        assert str(theirs) == repr(theirs) and repr(theirs).startswith("UserRRef(RRefId = ")
        return theirs.to_here()

    assert simulate_workers(3, body, 0) == [1, 2, 3]
