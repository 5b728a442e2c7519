"""Leaves with hooks on their gradients, and tables with sparse ones, in contexts at once."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn, rpc
from disttrain.nn import functional as F
from disttrain.rpc import autograd as dist_autograd
from support.workers import simulate_workers

pytestmark = pytest.mark.simulated

KEPT = {}  # the last worker's: all are in one process here
ROWS = 6
ALL = ["worker0", "worker1", "worker2"]


def look_up(rows):
    return F.embedding(dt.tensor(rows), KEPT["table"], sparse=True)


def gradient(context_id, name):
    return dist_autograd.get_gradients(context_id).get(KEPT[name])


def fail(leaf):
    raise ValueError("in the hook")


def of_rows(*rows, times=1.0):
    dense = np.zeros((ROWS, 2))
    for row in rows:
        dense[row] += times
    return dense


@pytest.mark.parametrize("seed", range(4))
def test_a_sparse_table_trained_in_several_contexts_at_once(seed):
    def train(me):
        for _ in range(3):
            with dist_autograd.context() as c:
                for k, rows in enumerate(([me, 3], [me, me + 1])):
                    loss = rpc.rpc_sync(2, look_up, (rows,)).sum() * (k + 1)
                    dist_autograd.backward(c, [loss])
                found = rpc.rpc_sync(2, gradient, (c, "table"))
                assert found.is_sparse
                assert found.coalesce().indices().array.tolist() == [sorted({me, 3, me + 1})]
                expected = of_rows(me, 3) + of_rows(me, me + 1, times=2.0)
                np.testing.assert_array_equal(found.to_dense().array, expected)

    def body(me):
        if me == 2:
            KEPT["table"] = nn.Embedding(ROWS, 2, sparse=True).double().weight
            look_up([4]).sum().backward()
        rpc.api._barrier(ALL)
        if me < 2:
            train(me)
        rpc.api._barrier(ALL)
        if me == 2:
            assert KEPT["table"].grad.is_sparse
            np.testing.assert_array_equal(KEPT["table"].grad.to_dense().array, of_rows(4))

    simulate_workers(3, body, seed=seed)


def test_a_hook_that_fails_leaves_grad_as_it_was():
    def body(me):
        if me:
            return
        leaf = dt.tensor(1.0, requires_grad=True)
        leaf.grad = dt.tensor(-7.0)
        leaf.register_post_accumulate_grad_hook(fail)
        with dist_autograd.context() as c:
            with pytest.raises(ValueError, match="in the hook"):
                dist_autograd.backward(c, [leaf * 2])
            assert leaf.grad.item() == -7.0
            assert leaf not in dist_autograd.get_gradients(c)

    simulate_workers(2, body)


def test_gradients_of_a_table_that_is_used_densely_too_are_dense():
    def body(me):
        if me:
            return
        table = nn.Embedding(ROWS, 2, sparse=True).double()
        with dist_autograd.context() as c:
            dist_autograd.backward(c, [table(dt.tensor([1])).sum()])
            assert dist_autograd.get_gradients(c)[table.weight].is_sparse
            dist_autograd.backward(c, [table.weight.sum()])
            found = dist_autograd.get_gradients(c)[table.weight]
            assert not found.is_sparse
            np.testing.assert_array_equal(found.array, of_rows(*range(ROWS), 1))
            dist_autograd.backward(c, [table(dt.tensor([1])).sum()])
            found = dist_autograd.get_gradients(c)[table.weight]
            np.testing.assert_array_equal(found.array, of_rows(*range(ROWS), 1, 1))

    simulate_workers(2, body)


def test_a_pass_that_fails_after_the_hooks_ran_changes_no_gradient():
    def body(me):
        if me:
            return
        table = nn.Embedding(ROWS, 2, sparse=True).double()
        late = dt.zeros(1, 2, dtype=dt.float64, requires_grad=True)
        leaf = dt.tensor(1.0, dtype=dt.float64, requires_grad=True)
        leaf.register_post_accumulate_grad_hook(lambda leaf: None)
        with dist_autograd.context() as c:
            for fails in (False, True):
                x = late * 1
                if fails:
                    x.register_hook(fail)
                loss = x.sum() + table(dt.tensor([1])).sum() + leaf * 2
                if fails:
                    with pytest.raises(ValueError, match="in the hook"):
                        dist_autograd.backward(c, [loss])
                else:
                    dist_autograd.backward(c, [loss])
                found = dist_autograd.get_gradients(c)
                assert found[leaf].item() == 2.0
                np.testing.assert_array_equal(found[table.weight].to_dense().array, of_rows(1))

    simulate_workers(2, body)
