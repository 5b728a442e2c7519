"""gradcheck: what it accepts and what it finds."""

import numpy as np
import pytest

import disttrain as dt
from disttrain.autograd import Function, GradcheckError, gradcheck, gradgradcheck

X = dt.tensor([0.3, 0.7, 1.1], dtype=dt.float64, requires_grad=True)
Z = dt.tensor([1 + 2j, 3 - 1j], dtype=dt.complex128, requires_grad=True)


@pytest.mark.parametrize("t", [X, Z])
def test_right_gradients_pass_every_check(t):
    assert gradcheck(lambda a: a.sin() * a, (t,), check_batched_grad=True, check_grad_dtypes=True,
                     fast_mode=True)  # fmt: skip
    assert gradgradcheck(lambda a: a * a * a, t)


def test_forward_mode():
    fn = lambda a: (a.sin() * a, a.sum())
    assert gradcheck(fn, X, check_forward_ad=True, check_batched_forward_grad=True)
    assert gradgradcheck(fn, X, check_fwd_over_rev=True, gen_non_contig_grad_outputs=True)


def test_complex_functions_that_are_not_holomorphic():
    for fn in (lambda z: z * z.conj() * z, lambda z: z.abs(), lambda z: z.real * z.imag):
        assert gradcheck(fn, (Z,))


def test_outputs_that_do_not_depend():
    assert gradcheck(lambda a: (a * 2, dt.ones(2, dtype=dt.float64), a.argmax()), X)


def hooked(change):
    def fn(a):
        y = a.clone()
        y.register_hook(change)
        return y

    return fn


class Jitter(Function):
    count = 0

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        Jitter.count += 1
        return g * (1 + 1e-7 * (Jitter.count % 2))


class NeedsAll(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h * 3 if g is not None or h is not None else None


class Wrong(Function):
    """Right backward, wrong jvp."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2

    @staticmethod
    def jvp(ctx, t):
        return t * 3


@pytest.mark.parametrize(
    ("fn", "options", "text"),
    [(hooked(lambda g: g * 2), {}, "mismatch for output 0 with respect to input 0"),
     (hooked(lambda g: g + 0.01), {"atol": 0.1}, "not multiplied by grad_output"),
     (Jitter.apply, {}, "not reentrant"),
     (Wrong.apply, {"check_forward_ad": True}, "forward mode mismatch"),
     (lambda a: NeedsAll.apply(a)[0], {}, "NoneType")],
)  # fmt: skip
def test_wrong_gradients_are_found(fn, options, text):
    if text == "NoneType":  # an error of the function's own is passed on
        with pytest.raises(TypeError, match=text):
            gradcheck(fn, X, **options)
        return
    with pytest.raises(GradcheckError, match=text):
        gradcheck(fn, X, **options)
    assert not gradcheck(fn, X, raise_exception=False, **options)


def test_nondeterminism_within_tolerance():
    assert gradcheck(Jitter.apply, X, nondet_tol=1e-5)


def test_what_cannot_be_checked():
    with pytest.raises(ValueError, match="at least one input tensor"):
        gradcheck(lambda a: a, dt.ones(2))
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(lambda a: a * 2, dt.ones(2, requires_grad=True), atol=0.1)
    with pytest.raises(KeyError):
        gradcheck(lambda a: {}["missing"], X, raise_exception=False)


def test_numbers_are_tensors_over_arrays():
    kinds = set()

    def square(x):
        kinds.add(type(x.array))
        x = x * 1
        return x.mul_(x.clone())

    assert gradcheck(square, (dt.tensor(2.0, dtype=dt.float64, requires_grad=True),))
    assert kinds == {np.ndarray}


def test_a_function_may_take_derivatives_of_its_own():
    """Of numbers that it makes: forward mode goes through that backward, too."""

    def f(x):
        y = dt.tensor(2.0, dtype=dt.float64, requires_grad=True)
        return x * dt.autograd.grad(y * y * x, y, create_graph=True)[0]

    x = dt.tensor(3.0, dtype=dt.float64, requires_grad=True)
    assert dt.autograd.gradcheck(f, [x], check_forward_ad=True)
