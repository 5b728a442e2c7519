"""Every in-place method, by its out-of-place form: value, memory, version, gradients of the old
value and of the arguments, on whole tensors, through views and on buffers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import disttrain as dt
from disttrain.errors import AutogradError, DTypeError, ShapeError

F = dt.nn.functional
SHAPE = (2, 3)
X = [[0.3, 0.5, 0.7], [0.2, 0.9, 0.4]]
Y = [[0.6, 0.1, 0.8], [0.35, 0.45, 0.25]]
INDEX = [[0, 1, 0], [1, 0, 0]]


def make(values=X, grad=False, dtype=None):
    return dt.tensor(values, requires_grad=grad, dtype=dtype or dt.float64)


# name -> the arguments after the tensor; "y" stands for a tensor that may require grad
UNARY = """abs absolute acos asin arccos arcsin atan arctan ceil conj_physical cos cosh deg2rad
digamma erf erfc erfinv exp exp2 expm1 fix floor frac i0 lgamma log log10 log1p log2 logit
nan_to_num neg negative rad2deg reciprocal relu round rsqrt sgn sigmoid sign sin sinc sinh sqrt
square tan tanh tril triu trunc arctanh asinh arcsinh atanh"""
CASES: dict = dict.fromkeys(UNARY.split(), ())
CASES |= {
    "add": ("y",), "add alpha": ("y", {"alpha": 2}), "add number": (2,), "sub": ("y",),
    "subtract": ("y",), "mul": ("y",), "multiply": ("y",), "mul number": (3,), "div": ("y",),
    "divide": ("y",), "true_divide": ("y",), "div floor": ("y", {"rounding_mode": "floor"}),
    "pow": ("y",), "pow number": (3,), "pow half": (0.5,), "float_power": (2.0,),
    "remainder": ("y",), "fmod": ("y",), "floor_divide": ("y",), "atan2": ("y",),
    "arctan2": ("y",), "hypot": ("y",), "copysign": ("y",), "xlogy": ("y",), "lerp": ("y", 0.25),
    "lerp tensor": ("y", "y"), "addcmul": ("y", "y"), "addcmul value": ("y", "y", {"value": 2}),
    "addcdiv": ("y", "y"), "clamp": (0.3, 0.6), "clip": (0.3, None), "clamp_min": (0.4,),
    "clamp_max": (0.6,), "clamp tensor": ("y",), "ldexp": ("y",), "cumsum": (0,), "cumprod": (1,),
    "masked_fill": ("mask", 5.0), "masked_fill tensor": ("mask", "scalar"),
    "masked_scatter": ("mask", "y"), "scatter": (0, "index", "y"),
    "scatter number": (0, "index", 2.0),
    "scatter_add": (0, "index", "y"), "scatter_reduce": (0, "index", "y", "sum"),
    "index_add": (1, "places", "y"), "index_copy": (1, "places", "y"),
    "index_fill": (1, "places", 3.0), "index_reduce": (1, "places", "y", "mean"),
    "put": ("flat", "y"), "index_put": ("pair", "row"),
    "index_put accumulate": ("pair", "row", {"accumulate": True}),
    "heaviside": ("y",), "nextafter": ("y",), "renorm": (2, 0, 0.5), "mvlgamma": (1,),
    "polygamma": (1,), "igamma": ("y",), "igammac": ("y",), "addmm": ("square", "y"),
    "addr": ("pair of", "row of"), "addmv": ("square", "two"),
}  # fmt: skip
NO_GRADIENT = {"heaviside", "nextafter", "igamma", "igammac"}  # of the tensor; in PyTorch too


def arguments(spec, grad):
    """The arguments of a case, with the tensors among them that a gradient is wanted of."""
    wanted, args, kwargs = [], [], {}

    def tensor(values):
        t = make(values, grad)
        wanted.append(t)
        return t

    known = {
        "y": lambda: tensor(Y), "scalar": lambda: tensor(4.0), "row": lambda: tensor([0.5, 0.6]),
        "square": lambda: tensor([[0.5, 0.2], [0.1, 0.3]]), "two": lambda: tensor([0.4, 0.7]),
        "row of": lambda: tensor([0.1, 0.2, 0.3]), "pair of": lambda: tensor([0.4, 0.5]),
        "mask": lambda: dt.tensor([[True, False, True], [False, False, True]]),
        "index": lambda: dt.tensor(INDEX), "places": lambda: dt.tensor([2, 0, 1]),
        "flat": lambda: dt.tensor([[5, 0, 3], [1, 2, 4]]),
        "pair": lambda: (dt.tensor([0, 1]), dt.tensor([2, 0])),
    }  # fmt: skip
    for a in spec:
        if isinstance(a, dict):
            kwargs = a
        else:
            args.append(known[a]() if isinstance(a, str) and a in known else a)
    return args, kwargs, wanted


def forms(name):
    """(the out-of-place form, the in-place form) as functions of a tensor and arguments."""
    word = name.split()[0]
    if name == "addmv":  # needs a vector: one column of the matrix
        return (
            lambda x, *a, **k: dt.stack([x[:, 0].addmv(*a), x[:, 1], x[:, 2]], 1),
            lambda x, *a, **k: (x[:, 0].addmv_(*a), x)[1],
        )
    return getattr(dt.Tensor, word), getattr(dt.Tensor, f"{word}_")


WEIGHT = np.arange(1.0, 7).reshape(SHAPE)


def gradients(run, name, x_grad, args_grad):
    x = make(X, x_grad)
    args, kwargs, wanted = arguments(CASES[name], args_grad)
    out = run(x * 1 if x_grad else x.clone(), args, kwargs)
    if not out.requires_grad:
        return out.detach().numpy(), []
    (out * dt.tensor(WEIGHT)).sum().backward()
    leaves = ([x] if x_grad else []) + (wanted if args_grad else [])
    return out.detach().numpy(), [None if t.grad is None else t.grad.numpy() for t in leaves]


def same(found, wanted):
    np.testing.assert_array_equal(found[0], wanted[0])
    for got, want in zip(found[1], wanted[1], strict=True):
        if want is None or got is None:  # a gradient of zeros, or none
            assert (got is None or not got.any()) and (want is None or not want.any())
        else:
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_value_memory_and_version(name):
    out_of_place, in_place = forms(name)
    x = make()
    args, kwargs, _ = arguments(CASES[name], False)
    want = out_of_place(x.clone(), *args, **kwargs)
    address, version = x.data_ptr(), x._version
    assert in_place(x, *args, **kwargs) is x
    np.testing.assert_array_equal(x.numpy(), want.numpy())
    assert x.data_ptr() == address and x._version > version


@pytest.mark.parametrize("who", ["tensor", "arguments", "both"])
@pytest.mark.parametrize("name", [n for n in CASES if n not in NO_GRADIENT])
def test_gradients(name, who):
    """Of the tensor that is overwritten (a buffer when only the arguments require grad)."""
    out_of_place, in_place = forms(name)
    grads = (who != "arguments", who != "tensor")
    wanted = gradients(lambda x, a, k: out_of_place(x, *a, **k), name, *grads)
    found = gradients(lambda x, a, k: in_place(x, *a, **k), name, *grads)
    if who == "arguments" and not wanted[1]:
        assert not found[1]
        return
    same(found, wanted)


@pytest.mark.parametrize("who", ["tensor", "arguments", "both"])
@pytest.mark.parametrize("name", [n for n in CASES if n not in NO_GRADIENT])
def test_gradients_through_a_view(name, who):
    out_of_place, in_place = forms(name)
    grads = (who != "arguments", who != "tensor")

    def view(x, a, k):
        base = dt.stack([x, x + 1], 2).transpose(0, 1).contiguous()
        in_place(base[:, :, 0].t(), *a, **k)
        return base[:, :, 0].t()

    wanted = gradients(lambda x, a, k: out_of_place(x, *a, **k), name, *grads)
    found = gradients(view, name, *grads)
    if who == "arguments" and not wanted[1]:
        assert not found[1]
        return
    same(found, wanted)


@pytest.mark.parametrize("name", [n for n in CASES if n not in NO_GRADIENT])
def test_a_leaf_that_requires_grad_is_refused(name):
    _, in_place = forms(name)
    args, kwargs, _ = arguments(CASES[name], False)
    leaf = make(grad=True)
    with pytest.raises(AutogradError, match="leaf"):
        in_place(leaf, *args, **kwargs)
    assert leaf.tolist() == X
    with dt.no_grad():
        in_place(leaf, *args, **kwargs)
    assert leaf.is_leaf and leaf.requires_grad


def test_every_method_of_the_list_is_there():
    names = """apply_ as_strided_ bernoulli_ bitwise_and_ bitwise_left_shift_ bitwise_not_
    bitwise_or_ bitwise_right_shift_ bitwise_xor_ cauchy_ copy_ detach_ eq_ equal exponential_ fill_
    fill_diagonal_ gcd_ ge_ geometric_ greater_ greater_equal_ gt_ lcm_ le_ less_ less_equal_
    log_normal_ logical_and_ logical_not_ logical_or_ logical_xor_ lt_ map_ map2_ ne_ normal_
    not_equal_ random_ requires_grad_ resize_ resize_as_ share_memory_ squeeze_ swapaxes_ swapdims_
    t_ transpose_ uniform_ unsqueeze_ zero_ acosh_ arccosh_ addbmm_ baddbmm_"""
    missing = [n for n in names.split() if not hasattr(dt.Tensor, n)]
    assert not missing


def test_whole_numbers_in_place():
    x = dt.tensor([12, 7, 5])
    assert x.clone().gcd_(dt.tensor([8, 14, 3])).tolist() == [4, 7, 1]
    assert x.clone().lcm_(dt.tensor([8, 14, 3])).tolist() == [24, 14, 15]
    assert x.clone().bitwise_and_(6).tolist() == [4, 6, 4]
    x |= 1
    x ^= dt.tensor([1, 0, 0])
    x <<= 1
    x >>= 2
    assert x.tolist() == [6, 3, 2]
    x //= 2
    x %= 2
    assert x.tolist() == [1, 1, 1]
    assert x.eq_(1).tolist() == [1, 1, 1]
    assert dt.tensor([True, False]).logical_not_().tolist() == [False, True]
    assert dt.tensor([1.0, 5.0]).gt_(2).tolist() == [0.0, 1.0]


def test_products_in_place():
    a, b = dt.ones(2, 2, 3), dt.ones(2, 3, 2)
    assert dt.zeros(2, 2).addbmm_(a, b).tolist() == [[6, 6], [6, 6]]
    assert dt.ones(2, 2, 2).baddbmm_(a, b, beta=2, alpha=3).unique().tolist() == [11]


def test_other_writers():
    x = dt.zeros(3, 3)
    assert x.fill_diagonal_(2.0).diagonal().tolist() == [2, 2, 2] and x.sum().item() == 6
    assert dt.ones(2).apply_(lambda v: v + 1).tolist() == [2, 2]
    assert dt.ones(2).map_(dt.tensor([1.0, 2.0]), lambda a, b: a + b).tolist() == [2, 3]
    assert dt.ones(4).resize_as_(dt.zeros(2, 2)).shape == (2, 2)
    assert dt.zeros(2, 2).copy_(3).tolist() == [[3, 3], [3, 3]]
    for draw in ("normal_", "uniform_", "exponential_", "cauchy_", "log_normal_", "random_"):
        assert getattr(dt.zeros(50), draw)().unique().numel() > 2
    assert dt.zeros(50).geometric_(0.5).min().item() >= 1


# --- types and shapes --------------------------------------------------------------------------
def test_the_type_is_that_of_the_tensor():
    assert dt.ones(2).mul_(dt.ones(2, dtype=dt.float64)).dtype is dt.float32
    assert dt.ones(2, dtype=dt.int64).mul_(dt.ones(2, dtype=dt.int32)).dtype is dt.int64
    for bad in (
        lambda: dt.ones(2, dtype=dt.int64).mul_(1.5),
        lambda: dt.ones(2, dtype=dt.int64).sqrt_(),
        lambda: dt.ones(2, dtype=dt.bool).add_(dt.ones(2, dtype=dt.int64)),
        lambda: dt.ones(2).mul_(1j),
    ):
        with pytest.raises(DTypeError, match="can't be cast"):
            bad()


def test_the_shape_is_that_of_the_tensor():
    assert dt.zeros(2, 3).add_(dt.ones(3)).sum().item() == 6
    with pytest.raises(ShapeError, match="broadcast shape"):
        dt.zeros(3).add_(dt.ones(2, 3))
    with pytest.raises(ShapeError):
        dt.zeros(3).copy_(dt.ones(2))


def test_a_write_that_failed_changes_nothing():
    x = make(grad=True)
    v = (x * 1)[0]
    seen = []
    v.register_hook(lambda g: seen.append(g.tolist()))
    for bad in (lambda: v.add_(dt.ones(5, 5)), lambda: v.mul_("2"), lambda: v.copy_(dt.ones(7))):
        with pytest.raises((ShapeError, DTypeError, TypeError)):
            bad()
    v.sum().backward()
    assert seen == [[1, 1, 1]] and x.grad.tolist() == [[1, 1, 1], [0, 0, 0]]


# --- what takes the place of a value -----------------------------------------------------------
def test_an_overwritten_value_has_a_gradient_of_zeros():
    for write in (lambda t: t.zero_(), lambda t: t.fill_(2), lambda t: t.copy_(dt.ones(3)),
                  lambda t: t.normal_(), lambda t: t.__setitem__(slice(None), 5.0)):  # fmt: skip
        x = dt.ones(3, requires_grad=True)
        y = x * 2
        write(y)
        y.sum().backward()
        assert x.grad.tolist() == [0, 0, 0]


def test_copying_from_a_leaf_makes_no_leaf():
    w = dt.ones(3, requires_grad=True)
    y = dt.zeros(3)
    y.copy_(w)
    assert not y.is_leaf
    y.mul_(2)
    y.sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


def test_a_buffer_in_a_loop():
    """y = y * a + b, in place, as recurrent programs and running averages do."""
    a = make([0.5, 2.0, 1.0], True)
    y = make([1.0, 2.0, 3.0])
    for _ in range(3):
        y *= a
        y += a
    want = make([1.0, 2.0, 3.0])
    b = make([0.5, 2.0, 1.0], True)
    for _ in range(3):
        want = want * b + b
    y.sum().backward()
    want.sum().backward()
    assert y.tolist() == want.tolist() and a.grad.tolist() == b.grad.tolist()


@pytest.mark.parametrize(
    "write",
    [
        lambda h, w: h.view(2, 4, 2, 3)[:, :, 0].mul_(w),
        lambda h, w: h[::2].t().sub_(w[0, :2]),
        lambda h, w: h.diagonal().pow_(2).mul_(w[0, 0]),
        lambda h, w: h.unfold(0, 2, 2).div_(2 + w[0, 0]),
    ],
)
def test_second_order_of_writes(write):
    w = make(np.arange(1.0, 4).reshape(1, 3) / 7, True)
    x = make(np.arange(48.0).reshape(4, 12) / 10, True)

    def f(x, w):
        h = x * 1
        write(h, w)
        return (h**2).sum()

    gx, gw = dt.autograd.grad(f(x, w), (x, w), create_graph=True)
    ((gx**2).sum() + (gw**2).sum()).backward()
    eps, at = 1e-6, (1, 2)
    numbers = []
    for sign in (1, -1):
        moved = x.detach().clone()
        moved[at] += sign * eps
        moved.requires_grad_()
        v = w.detach().clone().requires_grad_()
        a, b = dt.autograd.grad(f(moved, v), (moved, v))
        numbers.append(((a**2).sum() + (b**2).sum()).item())
    assert x.grad[at].item() == pytest.approx((numbers[0] - numbers[1]) / (2 * eps), rel=1e-6)


# --- inplace=True ------------------------------------------------------------------------------
MODULES = {
    "ReLU": lambda i: dt.nn.ReLU(i), "ReLU6": lambda i: dt.nn.ReLU6(i),
    "SiLU": lambda i: dt.nn.SiLU(i), "Hardswish": lambda i: dt.nn.Hardswish(i),
    "Hardsigmoid": lambda i: dt.nn.Hardsigmoid(i), "Mish": lambda i: dt.nn.Mish(i),
    "ELU": lambda i: dt.nn.ELU(0.7, i), "CELU": lambda i: dt.nn.CELU(0.7, i),
    "SELU": lambda i: dt.nn.SELU(i), "LeakyReLU": lambda i: dt.nn.LeakyReLU(0.1, i),
    "Hardtanh": lambda i: dt.nn.Hardtanh(-0.5, 0.5, inplace=i),
    "Threshold": lambda i: dt.nn.Threshold(0.1, 2.0, i), "Dropout": lambda i: dt.nn.Dropout(0.5, i),
    "Dropout1d": lambda i: dt.nn.Dropout1d(0.5, i), "AlphaDropout": lambda i: dt.nn.AlphaDropout(
        0.5, i),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_activations_in_place_train(name):
    results = []
    for inplace in (False, True):
        dt.manual_seed(3)
        w = make(np.linspace(-4, 4, 24).reshape(2, 3, 4), True)
        h = w * 1
        out = MODULES[name](inplace)(h)
        assert (out is h) == inplace
        (out * dt.tensor(np.arange(24.0).reshape(2, 3, 4))).sum().backward()
        results.append((out.detach().numpy(), w.grad.numpy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-12)


SEVERAL_IN_ONE = {
    "expand": lambda: dt.ones(1).expand(6),
    "as_strided": lambda: dt.ones(1).as_strided((6,), (0,)),
    "broadcast_to": lambda: dt.from_numpy(np.broadcast_to(np.ones(1, np.float32), (6,))),
    "numpy": lambda: dt.from_numpy(as_strided(np.ones(1, np.float32), (6,), (0,))),
}


@pytest.mark.filterwarnings("ignore:from_numpy. The given NumPy array is not writable")
@pytest.mark.parametrize("kind", SEVERAL_IN_ONE)
def test_elements_that_are_one_are_refused_before_and_after_a_fill(kind):
    x = SEVERAL_IN_ONE[kind]()
    writes = [
        lambda: x.mul_(2),
        lambda: dt.add(x, 1, out=x),
        lambda: x.copy_(dt.ones(6)),
        lambda: x.neg_(),
    ]
    for value in (1.0, 3.0):
        x.fill_(value)
        for write in writes:
            with pytest.raises(ShapeError, match="single memory location"):
                write()
        assert x.tolist() == [value] * 6


def test_indices_and_sources_lie_apart_from_what_they_write_to():
    i = dt.tensor([2, 1, 0])
    writes = {
        "index_copy_": lambda: i.index_copy_(0, i, i.clone()),
        "index_add_": lambda: i.index_add_(0, i.clone(), i),
        "index_fill_": lambda: i.index_fill_(0, i, 0),
        "index_put_": lambda: i.index_put_((i,), i.clone()),
        "scatter_": lambda: i.scatter_(0, i.clone(), i),
        "put_": lambda: i.put_(i, i.clone()),
    }
    for write in writes.values():
        with pytest.raises(RuntimeError, match="unsupported operation"):
            write()
    assert i.tolist() == [2, 1, 0]


@pytest.mark.parametrize("kind", [dt.float32, dt.float64, dt.float16, dt.int32])
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 4), ()), ((), ())])
@pytest.mark.parametrize("alpha", [0.1, -2.0, 3, 1e39, True])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_a_multiple_is_added_in_place_with_the_bits_of_the_sum(name, alpha, shapes, kind):
    a, b = (dt.full(shape, 1.7).to(kind) for shape in shapes)
    try:
        want = getattr(dt, name)(a, b, alpha=alpha)
    except (TypeError, RuntimeError) as error:
        with pytest.raises(type(error)):
            getattr(a, f"{name}_")(b, alpha=alpha)
    else:
        assert dt.equal(getattr(a, f"{name}_")(b, alpha=alpha), want) and a.dtype is kind


def test_only_sums_take_multiples():
    for call in (lambda a: a.mul_(a + 1, alpha=2.0), lambda a: a.abs_(alpha=2.0)):
        with pytest.raises(TypeError):
            call(dt.ones(3))
