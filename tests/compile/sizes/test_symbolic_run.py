"""What a symbolic run follows, and the decisions by sizes that it notices."""

from __future__ import annotations

import pytest

import disttrain as dt
from support.captures import captures, inputs


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: sum(x[i] for i in range(x.shape[0])), "s0 =="),
        (lambda x: x * {4: 1.0, 5: 2.0}.get(x.shape[0], 3.0), "looked up by it"),
        (lambda x: x * float(len(str(x.shape[0]))), "s0 =="),
    ],
)
def test_a_size_that_python_needs_as_a_number_is_captured_for_each(fn, why):
    with pytest.warns(UserWarning, match=f"anew for each size 0 of tensor 0: .*{why}") as said:
        count, told = captures(fn, *inputs((4, 3), (5, 3), (14, 3), (5, 3), (9, 3), (8, 3), (4, 3)))
    assert count == 5 and len(said) == 1
    assert f"test_symbolic_run.py:{fn.__code__.co_firstlineno} in" in str(said[0].message)
    assert why in told


def test_sizes_that_are_told_to_be_numbers_are_not_warned_of():
    run = dt.compile(lambda x: sum(x[i] for i in range(len(x))), dynamic=False)
    for size in (3, 4, 5, 6, 7):
        assert run(dt.ones(size)).item() == size


def test_a_decision_by_a_size_is_guarded():
    fn = lambda x: x * 2 if x.shape[0] > 4 else x - 1
    count, told = captures(fn, *inputs((6, 3), (7, 3), (9, 3), (3, 3), (2, 3), (12, 3)))
    assert count == 3
    assert "s0 > 4" in told
    assert "s0 <= 4" in told


def test_a_shape_that_happens_to_be_another_one_is_guarded():
    table = dt.randn(8, 1)

    def f(x):
        return x * 2 if tuple(x.shape) == tuple(table.shape) else x + table.sum()

    count, _ = captures(f, *inputs((4, 1), (5, 1), (8, 1), (9, 1), (8, 1)))
    assert count == 3


def test_a_program_that_catches_everything_is_followed_all_the_same():
    def f(x):
        try:
            return x * float((x.T * 2).stride()[0])
        except:  # noqa: E722
            return x * 1.0

    count, told = captures(f, *inputs((4, 3), (5, 3), (6, 3)))
    assert count == 3
    assert "strides" in told


def test_memory_that_lies_otherwise_is_another_capture():
    run = dt.compile(lambda x: x.transpose(0, 1).contiguous().view(-1) * 2, dynamic=True)
    for n in (3, 5, 1, 4):
        wide = dt.randn(n, 8)
        for x in (wide, wide[:, ::2], wide.T):
            expected = x.transpose(0, 1).contiguous().view(-1) * 2
            assert dt.equal(run(x), expected)
