"""What is no Tensor, where one is needed, is refused with a TypeError that names the argument."""

import inspect

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import Primitive
from disttrain.ops.functions import outs

X = dt.ones(2)
COMPARISONS = "eq ne lt le gt ge greater greater_equal less less_equal not_equal".split()
OF_TENSORS = """copysign fmod equal maximum minimum hypot nextafter atan2 arctan2 logaddexp igamma
logical_and fmax fmin isclose dist""".split()
ANY = "remainder floor_divide bitwise_and bitwise_or xlogy float_power pow".split()


@pytest.mark.parametrize("name", COMPARISONS + OF_TENSORS + ANY)
def test_two_numbers_are_refused(name):
    with pytest.raises(TypeError):
        getattr(dt, name)(2, 3)


@pytest.mark.parametrize("name", COMPARISONS + OF_TENSORS)
def test_the_first_is_a_tensor(name):
    with pytest.raises(TypeError):
        getattr(dt, name)(2.0, X)


@pytest.mark.parametrize("name", ANY)
def test_either_may_be_a_number(name):
    whole = dt.ones(2, dtype=dt.int64)
    for pair in ((whole, 2), (2, whole)):
        assert getattr(dt, name)(*pair).shape == (2,)


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_have_their_own_names(name):
    assert getattr(dt, name).__name__ == name


@pytest.mark.parametrize("bad", [2, 2.5, True, 1j, "a", None, [1.0], (X, X), np.ones(2), object()],
                         ids=lambda bad: type(bad).__name__)  # fmt: skip
def test_every_function_of_a_tensor_refuses_the_rest(bad):
    names = [*outs._CHECKED.split(), *outs._FILLS.split()]
    for name in names:
        fn = getattr(dt, name, None)
        if fn is None or isinstance(getattr(fn, "__wrapped__", fn), Primitive):
            continue
        first = next(iter(inspect.signature(fn).parameters.values()))
        if first.annotation == "Tensor" and first.kind is first.POSITIONAL_OR_KEYWORD:
            with pytest.raises(TypeError, match=r"Tensor|argument"):
                fn(bad)


def test_the_place_is_named():
    with pytest.raises(TypeError, match=r"mv\(\): argument 'vec' \(position 2\) must be Tensor"):
        dt.mv(dt.ones(2, 2), 3)
    with pytest.raises(TypeError, match="element 1"):
        dt.meshgrid(X, 3)
    with pytest.raises(TypeError, match="must be a dtype"):
        dt.can_cast(2, dt.float32)


def test_what_else_is_wrong_is_said_as_before():
    with pytest.raises(dt.errors.ShapeError):
        dt.mv(dt.ones(2, 2), dt.ones(3))
    with pytest.raises(NotImplementedError):
        dt.fmod(dt.ones(2, dtype=dt.complex64), 0)


def test_products_that_are_added_take_their_older_order():
    a, b, c = dt.ones(2, 3, 3), dt.ones(2, 3, 4), dt.ones(2, 4, 3)
    with pytest.warns(UserWarning, match="deprecated"):
        assert dt.baddbmm(2, a, b, c)[0, 0, 0] == 6
    with pytest.raises(TypeError, match="must be Tensor"):
        dt.baddbmm(2, b, c)


@pytest.mark.parametrize("name", "add sub subtract mul div divide true_divide".split())
def test_arithmetic_takes_two_numbers(name):
    wanted = {"a": 5, "s": 1, "m": 6, "d": 1.5, "t": 1.5}[name[0]]
    assert isinstance(getattr(dt, name)(3, 2), dt.Tensor) and getattr(dt, name)(3, 2) == wanted
    assert getattr(dt, name)(3, 2).dtype is (dt.float32 if name[0] in "dt" else dt.int64)
    assert getattr(dt, name)(3, 2.0).dtype is dt.float32


X = dt.tensor([[1.0, 4.0, 2.0]])


@pytest.mark.parametrize(
    ("numpys", "own"),
    [
        (lambda: dt.softmax(X, axis=1), lambda: X.softmax(1)),
        (lambda: dt.sort(X, axis=1).values, lambda: X.sort(1).values),
        (lambda: dt.median(X, axis=1, keepdims=True).values, lambda: X.median(1, True).values),
        (lambda: dt.maximum(x1=X, x2=X + 1), lambda: X + 1),
        (lambda: dt.swapaxes(X, axis0=0, axis1=1), lambda: X.T),
        (lambda: X.unsqueeze(axis=0), lambda: X[None]),
        (lambda: dt.squeeze(X, axis=0), lambda: X[0]),
    ],
)
def test_arguments_have_numpys_names_too(numpys, own):
    assert dt.equal(numpys(), own())


def test_other_names_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        dt.softmax(X, axes=1)
    with pytest.raises(TypeError, match="axis"):
        dt.softmax(X, dim=1, axis=1)
