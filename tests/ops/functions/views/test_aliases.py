"""Every operation that makes a view, by what it promises: it shares memory, writes reach the base,
and gradients are right whatever was written through which view, and however the incoming gradient
lies in memory. Expectations come from numbering the elements: a view of the numbers says which
elements of the base it holds."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import AutogradError, ConfigError, ShapeError

VIEWS = {
    "view": ((3, 4), lambda x: x.view(2, 6)),
    "view -1": ((3, 4), lambda x: x.view(-1)),
    "view_as": ((3, 4), lambda x: x.view_as(dt.zeros(4, 3))),
    "reshape": ((3, 4), lambda x: x.reshape(4, 3)),
    "reshape of a transpose": ((3, 4), lambda x: x.t().reshape(4, 3, 1)),
    "reshape_as": ((3, 4), lambda x: x.reshape_as(dt.zeros(12))),
    "flatten": ((2, 3, 2), lambda x: x.flatten(1)),
    "unflatten": ((2, 6), lambda x: x.unflatten(1, (3, -1))),
    "ravel": ((2, 3), lambda x: x.ravel()),
    "transpose": ((2, 3), lambda x: x.transpose(0, 1)),
    "t": ((2, 3), lambda x: x.t()),
    "T": ((2, 3), lambda x: x.T),
    "mT": ((2, 2, 3), lambda x: x.mT),
    "H": ((2, 3), lambda x: x.H),
    "mH": ((2, 2, 3), lambda x: x.mH),
    "adjoint": ((2, 3), lambda x: x.adjoint()),
    "swapaxes": ((2, 3), lambda x: x.swapaxes(0, 1)),
    "swapdims": ((2, 3), lambda x: x.swapdims(0, 1)),
    "permute": ((2, 3, 2), lambda x: x.permute(2, 0, 1)),
    "movedim": ((2, 3, 2), lambda x: x.movedim(0, 2)),
    "moveaxis": ((2, 3, 2), lambda x: x.moveaxis((0, 1), (1, 2))),
    "squeeze": ((2, 1, 3), lambda x: x.squeeze()),
    "squeeze dim": ((2, 1, 3), lambda x: x.squeeze(1)),
    "unsqueeze": ((2, 3), lambda x: x.unsqueeze(1)),
    "expand of one": ((2, 1), lambda x: x.expand(1, 2, 1)),
    "expand_as": ((2, 3), lambda x: x.expand_as(dt.zeros(1, 2, 3))),
    "broadcast_to": ((2, 3), lambda x: dt.broadcast_to(x, (1, 2, 3))),
    "narrow": ((4, 3), lambda x: x.narrow(0, 1, 2)),
    "select": ((4, 3), lambda x: x.select(1, 2)),
    "int": ((4, 3), lambda x: x[1]),
    "negative int": ((4, 3), lambda x: x[-1]),
    "slice": ((4, 3), lambda x: x[1:3]),
    "step": ((5, 3), lambda x: x[::2]),
    "slices": ((4, 5), lambda x: x[1:, ::2]),
    "None": ((2, 3), lambda x: x[:, None]),
    "Ellipsis": ((2, 3, 2), lambda x: x[..., 1]),
    "scalar": ((2, 3), lambda x: x[1, 2]),
    "all": ((2, 3), lambda x: x[...]),
    "chain": ((4, 6), lambda x: x.view(2, 2, 6)[:, 1].t()[1:4].unsqueeze(1).permute(2, 0, 1)[1]),
    "heads": ((4, 12), lambda x: x.view(2, 4, 2, 3)[:, :, 0]),
    "diagonal": ((3, 4), lambda x: x.diagonal()),
    "diagonal offset": ((3, 4), lambda x: x.diagonal(1)),
    "diagonal dims": ((2, 3, 3), lambda x: x.diagonal(-1, 1, 2)),
    "linalg diagonal of einsum": ((3, 3), lambda x: dt.einsum("ii->i", x)),
    "einsum": ((2, 3), lambda x: dt.einsum("ij->ji", x)),
    "unfold apart": ((6, 2), lambda x: x.unfold(0, 2, 3)),
    "as_strided": ((3, 4), lambda x: x.as_strided((2, 2), (4, 2), 1)),
    "as_strided of a slice": ((3, 4), lambda x: x[1:].as_strided((2, 2), (1, 4))),
    "tensor_split": ((5, 2), lambda x: x.tensor_split(2)[1]),
    "hsplit": ((2, 4), lambda x: x.hsplit(2)[1]),
    "vsplit": ((4, 2), lambda x: x.vsplit([1])[1]),
    "dsplit": ((2, 2, 4), lambda x: dt.dsplit(x, 2)[0]),
    "atleast_3d": ((2, 3), lambda x: dt.atleast_3d(x)),
}
SEVERAL = {
    "split": ((5, 2), lambda x: x.split(2)),
    "split sizes": ((5, 2), lambda x: x.split([1, 4])),
    "split_with_sizes": ((2, 5), lambda x: x.split_with_sizes([1, 4], 1)),
    "chunk": ((2, 5), lambda x: x.chunk(2, 1)),
    "unbind": ((3, 2), lambda x: x.unbind()),
    "unbind dim": ((3, 2), lambda x: x.unbind(1)),
}


def numbered(shape):
    return dt.arange(float(np.prod(shape))).reshape(shape).clone()


def places(shape, fn):
    """Which elements of the base, flattened, the view holds: an array in the view's shape."""
    return fn(numbered(shape)).numpy().astype(int)


LAYOUTS = {
    "contiguous": lambda w: w,
    "transposed": lambda w: w.permute(*reversed(range(w.ndim))).contiguous().permute(
        *reversed(range(w.ndim))
    ),
    "strided": lambda w: dt.stack([w, w], -1)[..., 0],
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shares_memory(name):
    shape, fn = VIEWS[name]
    x = numbered(shape)
    v = fn(x)
    assert v._base is x and v._is_view() and not x._is_view()
    assert v.untyped_storage() == x.untyped_storage()
    at = places(shape, fn)
    assert v.data_ptr() - x.data_ptr() == at.flat[0] * x.element_size()
    assert v.storage_offset() == at.flat[0]
    version = x._version
    v.fill_(-1.0)
    want = np.arange(float(np.prod(shape)))
    want[at.reshape(-1)] = -1
    assert x.reshape(-1).tolist() == want.tolist()
    assert x._version == v._version == version + 1
    x.zero_()
    assert not v.numpy().any()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VIEWS)
def test_the_gradient_after_a_write_through_a_view(name, layout):
    shape, fn = VIEWS[name]
    at, n = places(shape, fn), int(np.prod(shape))
    factor = 2.0 + np.arange(at.size, dtype=np.float32).reshape(at.shape)
    weight = 1.0 + np.arange(n, dtype=np.float32)
    x = numbered(shape).requires_grad_()
    base = x * 1
    fn(base).mul_(dt.tensor(factor))
    scale = np.ones(n)
    scale[at.reshape(-1)] = factor.reshape(-1)
    np.testing.assert_allclose(base.detach().reshape(-1).numpy(), np.arange(n) * scale)
    g = LAYOUTS[layout](dt.tensor(weight).reshape(shape))
    base.backward(g)
    np.testing.assert_allclose(x.grad.reshape(-1).numpy(), weight * scale)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_sees_what_was_written_to_its_base(name, layout):
    """The view was made before; value and gradient are those of the base's new value."""
    shape, fn = VIEWS[name]
    at, n = places(shape, fn), int(np.prod(shape))
    x = numbered(shape).requires_grad_()
    base = x * 1
    v = fn(base)
    base.mul_(3.0)
    np.testing.assert_allclose(v.detach().numpy(), at * 3.0)
    weight = 1.0 + np.arange(at.size, dtype=np.float32).reshape(at.shape)
    v.backward(LAYOUTS[layout](dt.tensor(weight)) if at.ndim else dt.tensor(weight))
    want = np.zeros(n)
    want[at.reshape(-1)] = 3 * weight.reshape(-1)
    np.testing.assert_allclose(x.grad.reshape(-1).numpy(), want)


@pytest.mark.parametrize("name", VIEWS)
def test_second_order_through_a_write(name):
    """d/dx sum((x written through a view)^2 ...) and once more, by the numbers."""
    shape, fn = VIEWS[name]
    at, n = places(shape, fn), int(np.prod(shape))
    x = (numbered(shape) + 1).requires_grad_()
    base = x * 1
    fn(base).mul_(2.0)
    (g,) = dt.autograd.grad((base**3).sum(), x, create_graph=True)
    g.sum().backward()
    scale = np.ones(n)
    scale[at.reshape(-1)] = 2
    values = 1.0 + np.arange(n)
    np.testing.assert_allclose(g.detach().reshape(-1).numpy(), 3 * scale**3 * values**2, rtol=1e-6)
    np.testing.assert_allclose(x.grad.reshape(-1).numpy(), 6 * scale**3 * values, rtol=1e-6)


@pytest.mark.parametrize("name", VIEWS)
def test_what_a_graph_free_buffer_takes_from_a_gradient_through_a_view(name):
    shape, fn = VIEWS[name]
    at = places(shape, fn)
    w = dt.tensor(2.0 + np.arange(at.size, dtype=np.float32).reshape(at.shape), requires_grad=True)
    base = numbered(shape)
    fn(base).mul_(w)
    assert base.requires_grad
    base.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), at)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_leaf_is_not_written_to(name):
    shape, fn = VIEWS[name]
    x = numbered(shape).requires_grad_()
    with pytest.raises(AutogradError, match="view of a leaf"):
        fn(x).mul_(2.0)
    with dt.no_grad():
        fn(x).mul_(2.0)
    assert x.is_leaf and x.requires_grad


@pytest.mark.parametrize("name", SEVERAL)
def test_several_views_at_once(name):
    """Memory is shared; recorded writes are refused as in PyTorch; others reach the base; and a
    write to the base is seen by the gradient."""
    shape, fn = SEVERAL[name]
    ats = [t.numpy().astype(int) for t in fn(numbered(shape))]
    x = numbered(shape)
    for v, at in zip(fn(x), ats, strict=True):
        assert v._base is x
        v.add_(100.0)
        assert x.reshape(-1).numpy()[at.reshape(-1)].min() >= 100
    with pytest.raises(AutogradError, match="multiple views"):
        fn(x)[0].mul_(dt.ones((), requires_grad=True))
    leaf = numbered(shape).requires_grad_()
    base = leaf * 1
    parts = fn(base)
    base.mul_(5.0)
    parts[-1].sum().backward()
    want = np.zeros(int(np.prod(shape)))
    want[ats[-1].reshape(-1)] = 5
    assert leaf.grad.reshape(-1).tolist() == want.tolist()


def test_a_view_made_without_recording_is_not_written_to_while_recording():
    x = dt.zeros(4)
    with dt.no_grad():
        v = x[:2]
    with pytest.raises(AutogradError, match="no_grad"):
        v.mul_(dt.ones(2, requires_grad=True))


# --- complex -----------------------------------------------------------------------------------
def test_real_and_imag_are_views():
    z = dt.tensor([1 + 2j, 3 + 4j])
    z.real.add_(10)
    z.imag[0] = 0
    assert z.tolist() == [11 + 0j, 13 + 4j]
    x = dt.tensor([1 + 2j, 3 + 4j], requires_grad=True)
    y = x * 1
    y.real.mul_(2.0)
    y.imag.mul_(dt.tensor([3.0, 5.0]))
    dt.view_as_real(y).backward(dt.tensor([[1.0, 10.0], [100.0, 1000.0]]))
    assert x.grad.tolist() == [2 + 30j, 200 + 5000j]


def test_pairs_and_complex_numbers_share_memory():
    p = dt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    q = p * 1
    dt.view_as_complex(q).mul_(1j)
    assert q.tolist() == [[-2, 1], [-4, 3]]
    q.backward(dt.tensor([[1.0, 2.0], [3.0, 4.0]]).t().contiguous().t())
    assert p.grad.tolist() == [[2, -1], [4, -3]]
    with pytest.raises(ShapeError, match="strides"):
        dt.view_as_complex(dt.zeros(2, 4).t())


def test_view_as_another_type_shares_memory_and_leaves_the_graph():
    x = dt.ones(3, requires_grad=True)
    y = x * 1
    bits = y.view(dt.int32)
    assert not bits.requires_grad and bits.data_ptr() == y.data_ptr()
    bits.zero_()
    assert y.tolist() == [0, 0, 0]


# --- what is the tensor itself, and what is a copy -----------------------------------------------
ITSELF = {
    "contiguous": lambda x: x.contiguous(),
    "to its type": lambda x: x.to(dt.float32),
    "float": lambda x: x.float(),
    "cpu": lambda x: x.cpu(),
    "type_as": lambda x: x.type_as(x),
    "real": lambda x: x.real,
    "conj": lambda x: x.conj(),
    "resolve_conj": lambda x: x.resolve_conj(),
    "positive": lambda x: x.positive(),
    "flatten of nothing": lambda x: x.flatten(0, 0),
    "atleast_2d": lambda x: dt.atleast_2d(x),
    "sum_to_size": lambda x: x.sum_to_size(2, 3),
    "dropout of nothing": lambda x: dt.nn.functional.dropout(x, 0.0),
    "Identity": lambda x: dt.nn.Identity()(x),
}
COPIES = {
    "clone": lambda x: x.clone(),
    "to copy": lambda x: x.to(dt.float32, copy=True),
    "flip of size 1": lambda x: x[:1].flip(0),
    "flip of nothing": lambda x: x.flip(()),
    "roll by 0": lambda x: x.roll(0, 0),
    "rot90 by 0": lambda x: x.rot90(0),
    "repeat once": lambda x: x.repeat(1, 1),
    "tile once": lambda x: x.tile((1, 1)),
    "diag": lambda x: x[:, :2].diag(),
    "cat of one": lambda x: dt.cat([x]),
    "narrow_copy": lambda x: x.narrow_copy(0, 0, 2),
    "index_select": lambda x: x.index_select(0, dt.tensor([0, 1])),
    "index_select of a scalar": lambda x: x[0, 0].index_select(0, dt.tensor([0])),
    "mask": lambda x: x[x > -1],
    "index tensor": lambda x: x[dt.tensor([0, 1])],
    "sum over size 1": lambda x: x[:1].sum(0),
    "amax over size 1": lambda x: x[:1].amax(0),
    "cumsum": lambda x: x[:1].cumsum(0),
    "round": lambda x: x.round(),
    "clamp": lambda x: x.clamp(-1e9, 1e9),
    "pow 1": lambda x: x.pow(1),
    "transposed contiguous": lambda x: x.t().contiguous(),
    "reshape that cannot be a view": lambda x: x.t().reshape(6),
    "max_pool1d": lambda x: dt.nn.functional.max_pool1d(x[None], 1),
    "max_pool2d": lambda x: dt.nn.functional.max_pool2d(x[None], 1),
    "avg_pool1d": lambda x: dt.nn.functional.avg_pool1d(x[None], 1),
    "adaptive_avg_pool1d": lambda x: dt.nn.functional.adaptive_avg_pool1d(x[None], 3),
    "adaptive_max_pool1d": lambda x: dt.nn.functional.adaptive_max_pool1d(x[None], 3),
    "pixel_shuffle": lambda x: dt.nn.functional.pixel_shuffle(x[None], 1),
    "pixel_unshuffle": lambda x: dt.nn.functional.pixel_unshuffle(x[None], 1),
    "channel_shuffle": lambda x: dt.nn.functional.channel_shuffle(x[None, None], 1),
    "pad 0": lambda x: dt.nn.functional.pad(x, (0, 0)),
    "pad 0 circular": lambda x: dt.nn.functional.pad(x[None], (0, 0), mode="circular"),
    "unfold 1": lambda x: dt.nn.functional.unfold(x[None, None], 1),
    "interpolate": lambda x: dt.nn.functional.interpolate(x[None], scale_factor=1),
    "diagonal_scatter": lambda x: dt.diagonal_scatter(x, dt.zeros(2)),
}


@pytest.mark.parametrize("name", ITSELF)
def test_the_tensor_itself(name):
    x = numbered((2, 3))
    assert ITSELF[name](x) is x


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_has_memory_of_its_own(name):
    x = numbered((2, 3))
    out = COPIES[name](x)
    assert not np.shares_memory(out.numpy(), x.numpy())


def test_detach_shares_memory_and_version():
    x = dt.ones(3, requires_grad=True)
    y = x.exp()
    d = y.detach()
    assert d._base is None and d.data_ptr() == y.data_ptr() and d.is_leaf
    d.zero_()
    assert y.tolist() == [0, 0, 0] and y._version == 1
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.sum().backward()


# --- a view of several elements that are one -----------------------------------------------------
def test_expanded_tensors_are_read_not_written():
    x = dt.arange(3.0)
    e = x.expand(2, 3)
    assert e.sum().item() == 6
    for write in (lambda: e.add_(1), lambda: e.copy_(dt.zeros(2, 3)), lambda: e.t().mul_(2)):
        with pytest.raises(ShapeError, match=r"clone\(\) the tensor"):
            write()
    with pytest.raises(ShapeError, match=r"clone\(\) the tensor"):
        e[:, 0] = 1
    e[0] = 7
    assert x.tolist() == [7, 7, 7]
    e.fill_(2)
    assert x.tolist() == [2, 2, 2]


def test_memory_that_is_read_shifted_while_written_is_refused():
    a = dt.arange(6.0)
    with pytest.raises(ShapeError, match=r"clone\(\) the tensor"):
        a[1:] = a[:-1]
    with pytest.raises(ShapeError, match=r"clone\(\) the tensor"):
        a[1:].add_(a[:-1])
    a[1:] = a[:-1].clone()
    a.mul_(a)
    a[:3] = a[3:]
    a[:] = a[0]
    assert a.tolist() == [4] * 6


# --- a change of shape in place ------------------------------------------------------------------
@pytest.mark.parametrize(
    "change", [lambda t: t.t_(), lambda t: t.transpose_(0, 1), lambda t: t.swapaxes_(0, 1)]
)
def test_another_shape_in_place(change):
    x = dt.arange(6.0).reshape(2, 3).clone().requires_grad_()
    y = x * 1
    row = y[0]
    assert change(y) is y and y.shape == (3, 2) and y._base is None
    y[0].mul_(10.0)
    assert row.tolist() == [0, 1, 2]
    (row * dt.tensor([1.0, 2.0, 3.0])).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [[10, 2, 3], [0, 0, 0]]
    x.grad = None
    y.backward(dt.arange(6.0).reshape(3, 2))
    assert x.grad.tolist() == [[0, 2, 4], [10, 3, 5]]


def test_unsqueeze_and_squeeze_in_place():
    x = dt.zeros(2, 1)
    assert x.squeeze_(1).shape == (2,) and x.unsqueeze_(0).shape == (1, 2)
    leaf = dt.zeros(2, requires_grad=True)
    with pytest.raises(AutogradError, match="leaf"):
        leaf.unsqueeze_(0)


def test_a_saved_tensor_that_changed_its_shape_is_refused():
    a = dt.ones(2, 3)
    y = dt.ones(2, 3, requires_grad=True) * a
    a.t_()
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_base_that_nobody_holds_is_none():
    """A function may end in a view of something of its own: that is no view of the user's."""
    w = dt.tensor([1.0, 2.0], requires_grad=True)
    m = dt.eye(2)
    assert (m @ w)._base is None and w.roll(1)._base is None
    with dt.no_grad():
        h = m @ w
    h.mul_(w)
    h.sum().backward()
    assert w.grad.tolist() == [1, 2]
    rolled = w.roll(1)
    assert not rolled.detach_().requires_grad
    base = m[0]
    assert base.view(2, 1)._base is m and base.view(2, 1).view(2)._base is m


def test_a_gradient_of_a_recorded_backward_can_be_added_to():
    x = dt.ones(3, requires_grad=True)
    y = x.mean()
    y.backward(create_graph=True)
    y.backward()
    assert x.grad.tolist() == pytest.approx([2 / 3] * 3)


def test_detach_in_place():
    x = dt.ones(2, 2, requires_grad=True)
    y = x * 2
    row = y[0]
    y.detach_()
    assert not y.requires_grad and row.requires_grad
    with pytest.raises(AutogradError, match="views"):
        row.detach_()


@pytest.mark.parametrize("sizes", [(2, 1, 1), (1, 1), (3, 1), (1, 2), (1, 1, 1)])
def test_repeated_elements_have_places_of_their_own(sizes):
    x = dt.arange(3.0).reshape(1, 3)
    out = x.repeat(*sizes)
    out.reshape(-1)[0] = 9.0
    assert (out == 9.0).sum() == 1 and x.tolist() == [[0.0, 1.0, 2.0]]


def test_a_number_that_was_written_to_has_a_gradient():
    x = dt.tensor(2.0, requires_grad=True)
    y = x.mean(-1)
    total = dt.autograd.grad(y, x, create_graph=True)[0].sum()
    y.zero_()
    total = total + y
    assert dt.autograd.grad(total, x)[0].item() == 0.0


def test_a_leaf_that_is_a_view_stays_a_leaf():
    x = dt.arange(4.0).reshape(2, 2).requires_grad_()
    x.detach().requires_grad_()
    assert x.requires_grad and x.is_leaf
    base = dt.arange(4.0)
    view = base.view(2, 2).requires_grad_()
    base.requires_grad_()
    assert view.grad_fn is None and base[:2].requires_grad
    base = dt.arange(4.0)
    view = base.view(2, 2).requires_grad_()
    base.mul_(dt.ones(4, requires_grad=True))
    assert view.grad_fn is not None


# --- memory formats ------------------------------------------------------------------------------
def test_a_copy_in_another_memory_format_is_a_copy():
    x = dt.arange(24.0).reshape(1, 2, 3, 4)
    y = x.contiguous(memory_format=dt.channels_last)
    assert y.stride() == (24, 1, 8, 2) and y.tolist() == x.tolist()
    assert y.is_contiguous(memory_format=dt.channels_last) and not y.is_contiguous()
    assert y.contiguous(memory_format=dt.channels_last) is y is y.to(memory_format=dt.channels_last)
    for z in (y.clone(), dt.zeros_like(y), y.to(dt.float64), dt.empty_like(y), y.detach()):
        assert z.stride() == y.stride()
    assert y.contiguous().stride() == dt.ones_like(y, memory_format=dt.contiguous_format).stride()
    y[0] = 0
    assert x.sum().item() == 276
    x.requires_grad_()
    z = x.to(memory_format=dt.channels_last)
    (z * z).sum().backward()
    assert x.grad.tolist() == (2 * x.detach()).tolist()


def test_memory_formats_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="required rank 4 tensor to use channels_last"):
        dt.ones(2, 3).contiguous(memory_format=dt.channels_last)
    with pytest.raises(TypeError, match="memory_format='channels_last' given"):
        dt.ones(1, 1, 2, 3).contiguous(memory_format="channels_last")
    with pytest.raises(ConfigError, match="preserve_format names no order"):
        dt.ones(2, 3).t().contiguous(memory_format=dt.preserve_format)


def test_modules_in_a_memory_format():
    model = dt.nn.Sequential(dt.nn.Conv2d(3, 4, 3), dt.nn.Flatten(), dt.nn.Linear(16, 2))
    before = model(dt.ones(1, 3, 4, 4)).tolist()
    model.to(memory_format=dt.channels_last)
    assert model[0].weight.stride() == (27, 1, 9, 3) and model[2].weight.is_contiguous()
    out = model(dt.ones(1, 3, 4, 4).to(memory_format=dt.channels_last))
    assert out.tolist() == [pytest.approx(row, abs=1e-6) for row in before]
    out.sum().backward()
    dt.optim.SGD(model.parameters(), lr=0.1).step()
    assert model[0].weight.stride() == (27, 1, 9, 3)


def test_ravel_lies_in_order():
    x = dt.arange(6.0)
    assert x.ravel() is x or x.ravel().data_ptr() == x.data_ptr()
    assert x[::2].ravel().stride() == (1,) and x[::2].flatten().stride() == (2,)
