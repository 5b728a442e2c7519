"""What sparse tensors of every form share: they have no memory, but a place in the graph."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import AutogradError, LayoutError

LAYOUTS = [dt.sparse_coo, dt.sparse_csr, dt.sparse_csc]


def example(layout, **options):
    x = dt.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 3), **options)
    return x if layout == "sparse_coo" else x.detach().to_sparse(layout=layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_they_have_no_memory(layout):
    x = example(layout)
    for ask in (x.data_ptr, x.tolist, x.storage, x.untyped_storage, x.contiguous, x.numpy):
        with pytest.raises((RuntimeError, TypeError)):
            ask()
    assert not x.is_contiguous() and x.stride() == (0, 0) and not x.is_pinned()
    assert x.device.type == "cpu" and not x.is_meta and hash(x) == id(x)
    assert dt.sparse_coo_tensor([[0]], [4.0], (1,)).item() == 4.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_leaf_has_a_gradient_of_its_form(layout):
    x = example(layout).requires_grad_()
    (x @ dt.tensor([[1.0], [2.0], [3.0]])).sum().backward()
    assert x.grad.layout == layout and x.grad.to_dense().tolist() == [[0, 2.0, 0], [1.0, 0, 0]]
    x.grad = x.grad * 2
    assert x.grad._values().sum().item() == 6.0
    with pytest.raises(LayoutError, match="a dense gradient"):
        x.grad = dt.ones(2, 3)
    x.grad = None
    assert x.grad is None and x.detach().requires_grad is False
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    assert y.grad._values().tolist() == [1.0, 1.0] and y.retains_grad
    with pytest.raises(AutogradError):
        __import__("copy").deepcopy(y)
    assert not x.requires_grad_(False).requires_grad and not y.detach_().requires_grad


@pytest.mark.parametrize("layout", LAYOUTS)
def test_types_and_copies(layout):
    x = example(layout)
    assert x.double().dtype is dt.float64
    assert sorted(x.to(dt.int64)._values().tolist()) == [2, 3]
    assert x.cpu() is x and x.to("cpu") is x and x.type().endswith("sparse.FloatTensor")
    twin = x.clone()
    twin._values().zero_()
    assert x.sum().item() == 5.0 and (x.is_floating_point(), x.dim()) == (True, 2)
    assert x.is_sparse == (layout == "sparse_coo") and x.is_sparse_csr == (layout == "sparse_csr")
    assert x.share_memory_().is_shared()


def test_a_dtype_is_not_taken_on_the_way_to_dense():
    with pytest.raises(RuntimeError, match="dtype argument"):
        example(dt.sparse_coo).to_dense(dt.float64)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_they_cannot_be_assigned_to(layout):
    x = example(layout)
    with pytest.raises(TypeError, match="Cannot assign to a sparse tensor"):
        x[0] = 1.0


def test_derivatives_of_sparse_inputs_are_checked():
    x = dt.eye(3, dtype=dt.float64).to_sparse().requires_grad_()
    w = dt.randn(3, 2, dtype=dt.float64, requires_grad=True)
    assert dt.autograd.gradcheck(lambda s, d: dt.sparse.mm(s, d), (x, w), masked=True)
    assert dt.autograd.gradcheck(lambda s: s * s, x)
    assert dt.autograd.gradgradcheck(lambda s, d: dt.sparse.mm(s, d), (x, w))
