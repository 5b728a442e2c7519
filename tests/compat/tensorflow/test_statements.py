"""A traced function gives what its Python gives: variables, attributes and items that branches and
loops set, ``break`` in blocks, what only a branch or a loop sets."""

from __future__ import annotations

import contextlib
import traceback
from types import SimpleNamespace

import numpy as np
import pytest

from disttrain.compat import tensorflow as tf


def attributes(x):
    o, d, rows = SimpleNamespace(a=x), {"k": x}, [x, x]
    if x > 0:
        o.a, d["k"], rows[0] = x * 2, x * 3, x * 4
    else:
        o.a, o.b, d["k"] = x * 5, x, x * 6
    return o.a, d["k"], rows


def attributes_of_loops(x):
    o, d, pair = SimpleNamespace(s=0), {"s": 1}, [0, 1]
    for i in tf.range(tf.abs(x)):
        o.s += i
        d["s"] *= 2
    while pair[1] < x:
        pair[0], pair[1] = pair[1], pair[0] + pair[1]
    return o.s, d["s"], pair


def leaving_blocks(x):
    s = 0
    for i in tf.range(tf.abs(x)):
        with contextlib.nullcontext():
            if i == 1:
                continue
            try:
                if i > 3:
                    break
                s += i
            finally:
                s += 100
        s += 10
    return s


def bubbles(x):
    row = tf.stack([x, 5 - x, 3, 1])
    for i in tf.range(4):
        for j in tf.range(3 - i):
            if row[j] > row[j + 1]:
                a, b = row[j], row[j + 1]
                row = tf.tensor_scatter_nd_update(row, [[j], [j + 1]], [b, a])
    return row


def set_by_a_loop(x):
    for i in tf.range(tf.abs(x) + 2):
        last = i * 2
        unused = last + 1  # noqa: F841
    return last


def functions_within(x):
    chosen = [lambda a, i=i: a * i if a > 0 else a - i for i in range(3)]
    return [f(x) for f in chosen]


def imports(x):
    if x > 0:
        import math as m

        y = x * int(m.tau)
    else:
        y = x
    return y


PROGRAMS = [
    attributes, attributes_of_loops, leaving_blocks, bubbles, set_by_a_loop, functions_within,
    imports,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("number", [7, 2, -3])
def test_same_as_python(program, number):
    given = tf.constant(number)
    wanted, found = program(given), tf.function(program)(given)
    for a, b in zip(*(_flat(v) for v in (wanted, found)), strict=True):
        assert np.array_equal(a, b)


def _flat(value):
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in _flat(v)]
    return [np.asarray(value)]


def half(x):
    if x > 0:
        y = x
    return y + 1  # the line that reads


def test_a_value_that_one_branch_leaves_out():
    with pytest.raises(ValueError, match="'y' must also be initialized in the else branch") as told:
        tf.function(half)(tf.constant(1))
    assert "the line that reads" in "".join(traceback.format_tb(told.tb))


def wrong(x):
    for _ in tf.range(3):
        if x > 0:
            x = tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))  # the wrong line
    return x


def test_lines_of_errors():
    with pytest.raises(Exception) as told:
        tf.function(wrong)(tf.constant(1.0))
    lines = [frame for frame in traceback.extract_tb(told.tb) if frame.filename == __file__]
    start = wrong.__code__.co_firstlineno
    assert all(frame.name == "test_lines_of_errors" or start <= frame.lineno <= start + 4
               for frame in lines)  # fmt: skip
    assert "the wrong line" in lines[-1].line
