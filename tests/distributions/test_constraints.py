"""Constraints: what is in each set, and how they are shown."""

import pytest

import disttrain as dt
from disttrain.distributions import constraints as c
from disttrain.errors import ShapeError

NAN = float("nan")
CASES = [
    (c.real, [0.0, NAN, float("inf")], [True, False, True], "Real()"),
    (c.boolean, [0.0, 1.0, 0.5], [True, True, False], "Boolean()"),
    (c.positive, [0.0, 1.0, NAN], [False, True, False], "GreaterThan(lower_bound=0.0)"),
    (c.nonnegative, [-1.0, 0.0], [False, True], "GreaterThanEq(lower_bound=0.0)"),
    (c.less_than(2), [1.0, 2.0], [True, False], "LessThan(upper_bound=2)"),
    (c.unit_interval, [0.0, 1.0, 1.1], [True, True, False],
     "Interval(lower_bound=0.0, upper_bound=1.0)"),
    (c.half_open_interval(0, 1), [0.0, 1.0], [True, False],
     "HalfOpenInterval(lower_bound=0, upper_bound=1)"),
    (c.integer_interval(0, 2), [0.0, 1.5, 2.0, 3.0], [True, False, True, False],
     "IntegerInterval(lower_bound=0, upper_bound=2)"),
    (c.nonnegative_integer, [-1.0, 0.0, 0.5], [False, True, False],
     "IntegerGreaterThan(lower_bound=0)"),
    (c.positive_integer, [0.0, 1.0], [False, True], "IntegerGreaterThan(lower_bound=1)"),
    (c.simplex, [[0.5, 0.5], [0.5, 0.6], [1.5, -0.5]], [True, False, False], "Simplex()"),
    (c.one_hot, [[0.0, 1.0], [1.0, 1.0]], [True, False], "OneHot()"),
    (c.real_vector, [[0.0, 1.0], [0.0, NAN]], [True, False],
     "IndependentConstraint(Real(), 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("constraint", "values", "good", "shown"), CASES)
def test_members(constraint, values, good, shown):
    assert constraint.check(dt.tensor(values)).tolist() == good
    assert repr(constraint) == shown


def test_independent_counts_dimensions():
    two = c.independent(c.one_hot, 1)
    assert two.event_dim == 2 and two.is_discrete
    with pytest.raises(ShapeError, match=r"value.dim\(\) >= 2 but got 1"):
        two.check(dt.zeros(3))
