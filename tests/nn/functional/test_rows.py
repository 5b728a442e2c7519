"""Gradients of tables that know which rows they touch."""

from __future__ import annotations

import disttrain as dt

F = dt.nn.functional


def test_a_sparse_gradient_names_the_rows_it_touches():
    table = dt.ones(100, 4).requires_grad_()
    F.embedding(dt.tensor([3, 7, 3]), table, sparse=True).sum().backward()
    grad = table.grad
    assert grad.is_sparse and sorted(set(grad.coalesce().indices()[0].tolist())) == [3, 7]
    dense = dt.ones(100, 4).requires_grad_()
    F.embedding(dt.tensor([3, 7, 3]), dense).sum().backward()
    assert grad.to_dense().tolist() == dense.grad.tolist()


def test_two_lookups_add_up():
    table = dt.ones(10, 2).requires_grad_()
    out = F.embedding(dt.tensor([1]), table, sparse=True).sum()
    out = out + 2 * F.embedding(dt.tensor([1, 5]), table, sparse=True).sum()
    out.backward()
    found = table.grad.to_dense()[:, 0].tolist()
    assert found == [0, 3, 0, 0, 0, 2, 0, 0, 0, 0]
