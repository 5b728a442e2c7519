"""Numbers that depend on sizes: expressions, relations, and that no value goes unnoticed."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from disttrain import symbolic
from disttrain.symbolic import Scope


def two(a: int = 7, b: int = 5):
    scope = Scope()
    return scope, scope.symbol(a), scope.symbol(b)


def test_integers_are_polynomials_and_equal_ones_need_no_relation():
    scope, a, b = two()
    assert (a * b * 64) // (b * 64) == a
    assert (a + b) * (a - b) == a * a - b * b
    assert (a * 6) % 3 == 0
    assert a - a == 0
    assert type(a - a) is int
    assert scope.relations == {}


def test_what_holds_for_all_sizes_needs_no_relation():
    scope, a, b = two()
    assert a > 0
    assert a != 1
    assert a * b >= 4
    assert -a < 0
    assert a * 3 - 1 != 0
    assert scope.relations == {}


@pytest.mark.parametrize("how", [operator.lt, operator.le, operator.eq, operator.ne, operator.gt])
@pytest.mark.parametrize("other", [3, 7, 9, 7.5])
def test_a_decision_is_a_relation_that_other_sizes_satisfy_or_not(how, other):
    scope, a, _ = two()
    answer = how(a, other)
    assert answer is how(7, other)
    for n in range(2, 12):
        assert scope.holds(n, 5) is (how(n, other) is answer)


@pytest.mark.parametrize(
    "take",
    [int, float, str, repr, hash, range, list, math.sqrt, "{}".format, np.empty, operator.index,
     lambda n: [0] * n, lambda n: "abc"[n - 6], lambda n: {7: 1}[n], lambda n: n.bit_length(),
     lambda n: np.zeros(3) * n, lambda n: np.minimum(np.ones(3), n), lambda n: n * np.ones(2),
     lambda n: np.float32(2) * n, lambda n: np.asarray([n, 1]), lambda n: math.gcd(n, 14),
     lambda n: struct_of(n)],
)  # fmt: skip
def test_whoever_takes_the_value_itself_pins_it(take):
    scope, a, _ = two()
    try:
        take(a)
    except (TypeError, IndexError):
        return  # it is refused, which is as safe
    assert scope.holds(7, 5)
    assert not scope.holds(8, 5)


def struct_of(n: int) -> bytes:
    return n.to_bytes(4, "little")


def test_it_is_a_number_to_isinstance():
    _, a, _ = two()
    assert isinstance(a, int)
    assert isinstance(a / 2, float)
    assert not isinstance(a, float)
    assert type(a) is not int


def test_expressions_compute_what_python_computes():
    scope, a, b = two()
    made = {
        "div": a / b, "pow": a**0.5, "floor": a // b, "mod": a % b, "ceil": math.ceil(a / 2),
        "product": math.prod((a, b, 3)), "scale": 1.0 / (a * b) ** 0.5, "shift": (a << 1) | 1,
        "round": round(a / 2), "float": symbolic.as_float(a), "least": min(a, b * 9),
    }  # fmt: skip
    run = scope.function([x.text for x in made.values()])
    for m, n in ((7, 5), (12, 3), (9, 2)):
        assert run(m, n) == (
            m / n, m**0.5, m // n, m % n, math.ceil(m / 2), m * n * 3, 1.0 / (m * n) ** 0.5,
            m << 1 | 1, round(m / 2), float(m), m,
        )  # fmt: skip


def test_shapes_of_symbols_broadcast_and_are_sliced():
    scope, a, b = two()
    assert symbolic.common_shape((a, 1), (1, b)) == (a, b)
    assert symbolic.common_shape((3, 1), (1, 4)) == (3, 4)
    with pytest.raises(ValueError, match="broadcast"):
        symbolic.common_shape((a,), (b,))
    for s in (slice(1, None), slice(None, -1), slice(None, None, 2), slice(-3, None), slice(2, 99)):
        assert symbolic.sliced(s, a)[1] == len(range(7)[s])
    assert scope.holds(7, 5)


def test_a_division_by_what_is_zero_for_other_sizes_is_an_error_there():
    scope, a, _ = two()
    half = 10 // (a - 3)
    run = scope.function([half.text])
    assert run(5, 2) == (5,)
    with pytest.raises(ZeroDivisionError):
        run(3, 2)


def test_arrays_of_plain_numbers_are_made_at_once():
    assert symbolic.made(np.zeros, (2, 3), shape=(2, 3)).shape == (2, 3)
    scope, a, _ = two()
    assert symbolic.made(np.zeros, (a, 3), shape=(a, 3)).shape == (7, 3)  # no run asks for more
    scope.sketch = lambda make, given, shape, _: (make, symbolic.hinted(given), shape)
    make, given, shape = symbolic.made(np.zeros, (a, 3), shape=(a, 3))
    assert make is np.zeros
    assert given == ((7, 3),)
    assert shape[0] is a


def test_values_go_through_hinted():
    _, a, _ = two()
    assert symbolic.hinted([a, (a, slice(0, a)), "x"]) == [7, (7, slice(0, 7)), "x"]
    assert symbolic.is_symbolic((1, slice(a, None)))
    assert not symbolic.is_symbolic((1, slice(2, None)))


def test_a_number_that_is_of_another_type_for_other_sizes_is_none_there():
    scope, a, _ = two()
    root = (a - 5) ** 0.5
    run = scope.function([root.text])
    assert run(9, 2) == (2.0,)
    with pytest.raises(ArithmeticError):
        run(4, 2)
    assert root > 1
    assert scope.holds(9, 2)
    assert not scope.holds(4, 2)
    assert abs((3 - a) ** 0.5) == 2.0  # complex: of this size alone
    assert not scope.holds(9, 2)
