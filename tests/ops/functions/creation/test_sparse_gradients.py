"""Gradients of tables that know their rows, and take a dense tensor's place in any operation."""

import copy
import pickle

import pytest

import disttrain as dt
from disttrain.ops.functions.creation.sparse_gradients import SparseGradient, of_dense, of_sparse


def gradient(*args):
    """As a gradient that backward may add to."""
    return of_sparse(dt.sparse_coo_tensor(*args))


def example():
    return gradient([[2, 0, 2], [1, 0, 1]], [1.0, 2.0, 3.0], (3, 2))


def test_places_and_values():
    x = example()
    assert x.is_sparse and x.layout == "sparse_coo" and tuple(x.shape) == (3, 2)
    assert x._nnz() == 3 and not x.is_coalesced()
    one = x.coalesce()
    assert one.indices().tolist() == [[0, 2], [0, 1]] and one.values().tolist() == [2.0, 4.0]
    assert one.coalesce() is one and (x.sparse_dim(), x.dense_dim()) == (2, 0)
    assert x.to_dense().tolist() == [[2.0, 0.0], [0.0, 0.0], [0.0, 4.0]]
    with pytest.raises(RuntimeError, match=r"please call \.coalesce\(\) first"):
        example().values()


def test_operations_take_it_for_the_dense_tensor():
    x = example()
    assert (x + 1).tolist() == [[3.0, 1.0], [1.0, 1.0], [1.0, 5.0]] and not (x + 1).is_sparse
    x.mul_(2)
    assert x.coalesce().values().tolist() == [4.0, 8.0]
    twin = copy.deepcopy(x)
    twin.mul_(0)
    assert x.to_dense().sum().item() == 12.0 and twin.is_sparse
    dense = dt.ones(2)
    assert dense.to_dense() is dense and not dense.is_sparse


def test_a_sparse_leaf_has_a_dense_gradient():
    x = gradient([[1, 1], [0, 0]], [1.0, 2.0], (2, 2)).requires_grad_()
    assert x.is_leaf and x.requires_grad and x.dtype is dt.float32
    assert x.coalesce() is x and x.values().tolist() == [3.0]
    (x * x).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0], [6.0, 0.0]]
    x.to_dense().sum().backward()
    (x.clone() * 2).sum().backward()
    assert x.grad.tolist() == [[3.0, 3.0], [9.0, 3.0]]
    assert not x.detach().requires_grad and x.detach().is_sparse


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_are_sparse_leaves(copied, grad):
    x = example().requires_grad_(grad)
    twin = copied(x)
    assert twin.is_sparse and twin.requires_grad is grad and twin.is_leaf
    assert not twin.is_coalesced() and twin._nnz() == 3
    assert twin.to_dense().tolist() == x.to_dense().tolist()


def test_multiplying_by_a_number_touches_the_few_values():
    x = example()
    x.mul_(2)
    assert not x.is_coalesced() and x._values().tolist() == [2.0, 4.0, 6.0]
    x.mul_(dt.full((3, 2), 2.0))
    assert x.to_dense().tolist() == [[8.0, 0.0], [0.0, 0.0], [0.0, 16.0]]


def test_clipping_leaves_sparse_gradients_sparse():
    table = dt.nn.Embedding(5, 2, sparse=True)
    table(dt.tensor([1, 3, 1])).sum().backward()
    norm = dt.nn.utils.clip_grad_norm_(table.parameters(), 1.0)
    assert norm.item() == pytest.approx(10.0**0.5)
    assert table.weight.grad._nnz() <= 3
    assert table.weight.grad.to_dense().norm().item() == pytest.approx(1.0, rel=1e-4)


def _two():
    g = gradient(dt.tensor([[0, 2, 0]]), dt.tensor([[1.0], [3.0], [5.0]]), (4, 1))
    h = gradient(dt.tensor([[1, 2]]), dt.tensor([[2.0], [7.0]]), (4, 1))
    return g, h


@pytest.mark.parametrize("dense_before", [False, True])
@pytest.mark.parametrize(
    "write, rows, values",
    [
        (lambda g, h: g.add_(h), [0, 1, 2], [6.0, 2.0, 10.0]),
        (lambda g, h: g.sub_(h, alpha=0.5), [0, 1, 2], [6.0, -1.0, -0.5]),
        (lambda g, h: g.copy_(h), [1, 2], [2.0, 7.0]),
        (lambda g, h: setattr(g, "data", h), [1, 2], [2.0, 7.0]),
        (lambda g, h: g.add_(1.0), [0, 1, 2, 3], [7.0, 1.0, 4.0, 1.0]),
        (lambda g, h: g.__setitem__(3, 4.0), [0, 2, 3], [6.0, 3.0, 4.0]),
        (lambda g, h: g._values().mul_(2.0), [0, 2], [12.0, 6.0]),
        (lambda g, h: g.div_(dt.tensor(2.0)), [0, 2], [3.0, 1.5]),
    ],
)
def test_what_is_written_names_its_places(write, rows, values, dense_before):
    g, h = _two()
    if dense_before:
        g.to_dense()
    write(g, h)
    one = g.coalesce()
    assert one.indices().tolist() == [rows]
    assert one.values().flatten().tolist() == values
    assert g.to_dense().flatten()[rows].tolist() == values


@pytest.mark.parametrize(
    "compute",
    [
        lambda g, h: g * 2.0, lambda g, h: 0.5 * g, lambda g, h: g / dt.tensor(4.0),
        lambda g, h: -g, lambda g, h: g + h, lambda g, h: g - h, lambda g, h: g.add(h, alpha=3),
        lambda g, h: g.data,
    ],
)  # fmt: skip
def test_sums_and_multiples_are_sparse(compute):
    g, h = _two()
    out = compute(g, h)
    assert out.is_sparse
    assert out.to_dense().tolist() == compute(g.to_dense(), h.to_dense()).tolist()
    assert not (g * dt.ones(4, 1).requires_grad_()).is_sparse  # gradients go through the dense one


def test_a_sum_of_coalesced_ones_is_coalesced():
    g, h = _two()
    out = g.coalesce() + h.coalesce()
    assert out.is_coalesced() and out.indices().tolist() == [[0, 1, 2]]


def test_a_table_that_was_asked_for_no_row_has_a_gradient_of_none():
    m = dt.nn.Embedding(4, 3, sparse=True)
    m(dt.tensor([], dtype=dt.int64)).sum().backward()
    assert m.weight.grad.is_sparse and m.weight.grad._nnz() == 0


@pytest.mark.parametrize(
    "run",
    [
        lambda x, out: x.mul(2, out=out),
        lambda x, out: x.add(x, alpha=3, out=out),
        lambda x, out: x.sub(x, alpha=2, out=out),
        lambda x, out: x.neg(out=out),
    ],
    ids=["mul", "add", "sub", "neg"],
)
def test_results_go_to_the_tensor_that_is_given_for_them(run):
    out = dt.empty(3, 2)
    assert run(example(), out) is out
    assert out.tolist() == run(example().to_dense(), dt.empty(3, 2)).tolist()


def test_a_sparse_tensor_that_is_assigned_becomes_one_that_backward_adds_to():
    p = dt.ones(3, 2).requires_grad_()
    p.grad = dt.sparse_coo_tensor([[1]], [[2.0, 3.0]], (3, 2))
    assert isinstance(p.grad, SparseGradient) and p.grad._nnz() == 1
    (p * 1.0).sum().backward()
    assert p.grad.to_dense().tolist() == [[1.0, 1.0], [3.0, 4.0], [1.0, 1.0]]
    one = of_dense(dt.eye(2), 1)
    assert one.indices().tolist() == [[0, 1]] and one.values().tolist() == [[1.0, 0.0], [0.0, 1.0]]
