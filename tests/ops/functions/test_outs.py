"""``out=``: what is written, in which shape and type, and what is refused."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import AutogradError, DTypeError, ShapeError

FILLED = {
    "exp": lambda a, out: dt.exp(a, out=out), "neg": lambda a, out: dt.neg(a, out=out),
    "add": lambda a, out: dt.add(a, a, alpha=2, out=out),
    "sub": lambda a, out: dt.sub(a, 1, out=out), "mul": lambda a, out: dt.mul(a, a, out=out),
    "div": lambda a, out: dt.div(a, 2, out=out), "pow": lambda a, out: dt.pow(a, 2, out=out),
    "atan2": lambda a, out: dt.atan2(a, a, out=out),
    "maximum": lambda a, out: dt.maximum(a, a, out=out),
    "matmul": lambda a, out: dt.matmul(a, a, out=out), "mm": lambda a, out: dt.mm(a, a, out=out),
    "sum": lambda a, out: dt.sum(a, 0, out=out), "mean": lambda a, out: dt.mean(a, 1, out=out),
    "cat": lambda a, out: dt.cat([a, a], out=out), "stack": lambda a, out: dt.stack([a], out=out),
    "where": lambda a, out: dt.where(a > 1, a, a, out=out),
    "clamp": lambda a, out: dt.clamp(a, 1, 2, out=out),
    "cumsum": lambda a, out: dt.cumsum(a, 0, out=out),
    "index_select": lambda a, out: dt.index_select(a, 0, dt.tensor([1]), out=out),
    "addmm": lambda a, out: dt.addmm(a, a, a, out=out),
    "tril": lambda a, out: dt.tril(a, out=out),
    "arange": lambda a, out: dt.arange(4, out=out),
    "full": lambda a, out: dt.full((2,), 3, out=out),
    "eye": lambda a, out: dt.eye(2, out=out),
    "linspace": lambda a, out: dt.linspace(0, 1, 3, out=out),
}  # fmt: skip


def matrix():
    return dt.arange(4.0).reshape(2, 2)


@pytest.mark.parametrize("name", FILLED)
def test_the_result_is_written(name):
    fn = FILLED[name]
    out = dt.empty(0)
    assert fn(matrix(), out) is out
    address = out.data_ptr()
    want = out.tolist()
    out.fill_(-7)
    fn(matrix(), out)
    assert out.tolist() == want and out.data_ptr() == address
    if name not in ("arange", "full", "eye", "linspace"):
        assert want == fn(matrix(), None).tolist()


def test_pairs():
    for fn in (dt.max, dt.min, dt.sort, dt.median, dt.kthvalue, dt.topk):
        values, places = dt.empty(0), dt.empty(0, dtype=dt.int64)
        out = fn(matrix(), 1, out=(values, places))
        assert out[0] is values and out[1] is places
    assert values.tolist() == [[1], [3]] and places.tolist() == [[1], [1]]


def test_random_numbers_are_drawn():
    for draw in (
        lambda out: dt.randn(100, out=out), lambda out: dt.rand(100, out=out),
        lambda out: dt.normal(0.0, 1.0, (100,), out=out),
        lambda out: dt.randint(9, (100,), out=out),
        lambda out: dt.randperm(100, out=out),
        lambda out: dt.bernoulli(dt.full((100,), 0.5), out=out),
    ):  # fmt: skip
        out = dt.full((100,), -5.0)
        assert draw(out) is out and out.dtype is dt.float32
        assert out.unique().numel() > 1 and -5.0 not in out.tolist()


def test_the_type_must_hold_the_result():
    wide = dt.empty(0, dtype=dt.float64)
    assert dt.add(matrix(), 1, out=wide).dtype is dt.float64
    assert dt.arange(3, out=dt.empty(0)).dtype is dt.float32
    with pytest.raises(DTypeError, match="can't be cast"):
        dt.add(matrix(), 1, out=dt.empty(0, dtype=dt.int64))


def test_another_shape_is_resized_with_a_warning():
    out = dt.zeros(3)
    with pytest.warns(UserWarning, match="was resized"):
        dt.add(matrix(), 1, out=out)
    assert out.tolist() == [[1, 2], [3, 4]]


def test_a_view_is_written_through():
    base = dt.zeros(4, 2)
    dt.add(matrix(), 1, out=base[::2])
    assert base.tolist() == [[1, 2], [0, 0], [3, 4], [0, 0]]


def test_memory_that_is_read_may_be_written_whole_but_not_shifted():
    a = dt.arange(4.0)
    assert dt.add(a, 1, out=a).tolist() == [1, 2, 3, 4]
    with pytest.raises(ShapeError, match=r"clone\(\) the tensor"):
        dt.add(a[:-1], 1, out=a[1:])


def test_gradients_are_refused():
    w = dt.ones(2, 2, requires_grad=True)
    for call in (lambda: dt.add(w, 1, out=dt.empty(0)), lambda: dt.exp(matrix(), out=w)):
        with pytest.raises(AutogradError, match="automatic differentiation"):
            call()
    with dt.no_grad():
        assert dt.exp(w, out=dt.empty(0)).shape == (2, 2)


EXACT = {
    "mm": lambda a, out: dt.mm(a, a, out=out), "amax": lambda a, out: dt.amax(a, 0, out=out),
    "abs": lambda a, out: dt.abs(a, out=out), "clamp": lambda a, out: dt.clamp(a, 0, 1, out=out),
    "where": lambda a, out: dt.where(a > 1, a, a, out=out), "inv": lambda a, out: dt.linalg.inv(
        a + dt.eye(2), out=out),
    "index_select": lambda a, out: dt.index_select(a, 0, dt.tensor([1]), out=out),
    "argmax": lambda a, out: dt.argmax(a, 0, out=out),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_some_results_are_of_one_type_with_out(name):
    out = dt.full((2, 2), 7, dtype=dt.float64)
    with pytest.raises(DTypeError, match="Expected out tensor to have dtype"):
        EXACT[name](matrix(), out)
    assert out.tolist() == [[7.0, 7.0], [7.0, 7.0]]


def test_sums_are_computed_in_the_type_of_out():
    a = dt.tensor([[0.5, 1.5], [0.5, 2.5]])
    for fn, want in ((dt.sum, [0, 3]), (dt.prod, [0, 2]), (dt.cumsum, [[0, 1], [0, 3]])):
        assert fn(a, 0, out=dt.empty(0, dtype=dt.int64)).tolist() == want
    assert dt.max(a, out=dt.empty(0, dtype=dt.float64)).item() == 2.5
    assert dt.clamp(a, min=a, out=dt.empty(0, dtype=dt.float64)).dtype is dt.float64


def test_outputs_that_share_memory():
    a, rows = matrix(), dt.tensor([1, 0])
    for fill in (
        lambda: dt.index_select(a, 0, rows, out=a), lambda: dt.cat([a], out=a),
        lambda: dt.gather(a, 0, dt.tensor([[0, 1], [1, 0]]), out=a),
        lambda: dt.masked_select(a, a >= 0, out=a.view(4)),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match="single memory location"):
            fill()
    assert a.tolist() == matrix().tolist()
    both = dt.zeros(2, dtype=dt.int64)
    with pytest.raises(ShapeError, match="one memory location"):
        dt.topk(dt.arange(4), 2, out=(both, both))
    assert dt.mm(a, a, out=a).tolist() == [[2.0, 3.0], [6.0, 11.0]]


@pytest.mark.parametrize(("name", "args"), [("arange", (4,)), ("linspace", (0, 3, 4))])
def test_a_range_keeps_the_shape_of_out_that_has_as_many_elements(name, args):
    whole = dt.zeros(2, 3)
    getattr(dt, name)(*args, out=whole[:, 1:])
    assert whole.tolist() == [[0, 0, 1], [0, 2, 3]]


def test_what_is_converted_and_what_may_be_written_twice():
    whole = dt.empty(2, 2, dtype=dt.int64)
    assert dt.chain_matmul(matrix() / 2, out=whole).tolist() == [[0, 0], [1, 1]]
    both = dt.empty(())
    dt.aminmax(matrix(), out=(both, both))
    assert both.item() == 3
    with pytest.raises(DTypeError, match="nanmean: out of"):
        dt.nanmean(matrix(), out=dt.empty((), dtype=dt.complex64))
