"""Tensor: what it is, its memory, its place in the graph; what it refuses."""

import copy
import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import AutogradError, DTypeError


def leaf(*values):
    return dt.tensor(values, requires_grad=True)


def test_sizes():
    size = dt.ones(2, 3, 4).shape
    assert isinstance(size, dt.Size) and size == (2, 3, 4) and size.numel() == 24
    assert repr(size) == "disttrain.Size([2, 3, 4])"
    assert isinstance(size[1:], dt.Size) and size[1] == 3 and size[:0].numel() == 1


def test_properties():
    t = dt.ones(2, 3, dtype=dt.float64)
    assert (t.ndim, t.itemsize, t.nbytes, t.dtype) == (2, 8, 48, dt.float64)
    assert t.is_cpu and not t.is_cuda and not t.is_meta and not t.is_sparse
    assert t.data_ptr() == t.numpy().__array_interface__["data"][0]
    meta = dt.ones(2, 3, device="meta")
    assert meta.is_meta and meta.device == "meta" and meta.meta() == ((2, 3), np.dtype("f4"))
    assert (meta + 1).is_meta and copy.deepcopy(meta).is_meta


def test_requires_grad_of_leaves():
    t = dt.ones(2)
    t.requires_grad = True
    assert t.requires_grad and t.is_leaf and t.grad_fn is None and t.output_nr == 0
    assert t.requires_grad_() is t
    t.requires_grad = False
    assert not t.requires_grad
    with pytest.raises(DTypeError, match="Only Tensors of floating point and complex"):
        dt.ones(2, dtype=dt.int64).requires_grad_()
    with pytest.raises(AutogradError, match=r"only a leaf.*AddBackward0"):
        (leaf(1.0) + 1).requires_grad = False


def test_an_accumulator_lives_as_long_as_its_leaf():
    x = leaf(1.0)
    before = x._node
    x.requires_grad_(False).requires_grad_(True)
    assert x._node is before


def test_detached_and_data_share_memory():
    x = leaf(1.0, 2.0)
    for alias in (x.detach(), x.data):
        assert not alias.requires_grad and np.shares_memory(alias.numpy(), x.detach().numpy())
    y = x * 2
    assert y._base is None and y[0]._base is y


def test_data_can_be_replaced_between_forward_and_backward():
    """The gradient is then that of the new value, as in PyTorch."""
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    x.data = dt.tensor([5.0, 6.0])
    assert x.tolist() == [5.0, 6.0] and x._version == 0
    y.backward()
    assert x.grad.tolist() == [10.0, 12.0]
    x.grad = None
    x.data = dt.ones(3)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_backward_reads_the_data_that_an_input_was_given():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = (y * y).sum()
    y.data = dt.tensor([5.0, 6.0])
    z.backward()
    assert x.grad.tolist() == [10.0, 12.0]


def test_a_result_that_is_needed_is_kept_as_it_was():
    x = leaf(0.0, 0.0)
    y = x.exp()
    y.data = dt.tensor([5.0, 6.0])
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_deleting_a_gradient_drops_it():
    x = leaf(1.0, 2.0)
    del x.grad
    x.sum().backward()
    del x.grad
    assert x.grad is None
    x.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_numpy():
    x = leaf(1.0, 2.0)
    with pytest.raises(AutogradError, match=r"detach\(\)\.numpy"):
        x.numpy()
    assert x.numpy(force=True).tolist() == x.detach().numpy().tolist() == [1.0, 2.0]
    assert np.shares_memory(x.detach().numpy(), x.numpy(force=True))


@pytest.mark.parametrize("make", [lambda: leaf(1.0, 2.0), lambda: dt.arange(6).reshape(2, 3).t(),
                                  lambda: dt.ones(2, dtype=dt.bfloat16), lambda: dt.tensor(3.0),
                                  lambda: dt.nn.Parameter(dt.ones(2))])  # fmt: skip
def test_copies_by_copy_and_pickle(make):
    t = make()
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(other) is type(t) and other.dtype is t.dtype and other.shape == t.shape
        assert other.tolist() == t.tolist() and other.requires_grad == t.requires_grad
        assert not np.shares_memory(other.detach().numpy(), t.detach().numpy())


def test_deepcopy_keeps_notes_and_identity():
    t = leaf(1.0)
    t.note = "kept"
    a, b = copy.deepcopy([t, t])
    assert a is b and a.note == "kept"


def test_tensors_are_hashed_by_identity():
    a, b = dt.ones(2), dt.ones(2)
    assert len({a, b, a}) == 2


def test_outputs_are_numbered():
    a, b = leaf(1.0, 2.0).unbind()
    assert (a.output_nr, b.output_nr) == (0, 1)


def test_hooks_need_a_leaf_or_a_graph():
    with pytest.raises(AutogradError, match="does not require grad"):
        dt.ones(1).register_hook(print)
    with pytest.raises(AutogradError, match="leaf"):
        dt.ones(1).register_post_accumulate_grad_hook(print)


def test_numpy_of_leaves_under_no_grad():
    with dt.no_grad():
        assert leaf(1.0).numpy().tolist() == [1.0]


def test_views_of_a_leaf_require_grad_with_it():
    a = dt.ones(3)
    b = a[:]
    b.add_(5)
    a.requires_grad = True
    (a * b.detach()).sum().backward()
    assert a.grad.tolist() == [6.0] * 3 and b.requires_grad
    for t in (a, b):
        with pytest.raises(AutogradError, match="leaf"):
            t.add_(5)


def test_a_leaf_that_is_set_leaves_its_old_graph():
    x = leaf(1.0, 2.0)
    edge = dt.autograd.graph.get_gradient_edge(x)
    out = (x * 2).sum()
    with dt.no_grad():
        x.set_(dt.ones(2))
    with pytest.raises(AutogradError, match="not have been used in the graph"):
        dt.autograd.grad(out, x, retain_graph=True)
    assert dt.autograd.grad(out, edge)[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("write", ["relu_", "exp_", "zero_"])
def test_views_of_a_leaf_that_nobody_holds_cannot_be_written_to(write):
    view = dt.ones(10, requires_grad=True).narrow(0, 0, 10)
    with pytest.raises(AutogradError, match="leaf"):
        getattr(view, write)()


def test_an_alias_that_turns_a_leaf_moves_no_view_of_the_same_memory():
    x = dt.tensor([1.5], requires_grad=True)
    view = x.view(1)
    result, node = view**2, view.grad_fn
    parts = x.unbind()
    later = parts[0] * 3
    view.detach().requires_grad_()
    assert view.grad_fn is node
    assert dt.autograd.grad(result, view)[0].tolist() == [3.0]
    assert dt.autograd.grad(later, parts[0])[0].item() == 3.0
