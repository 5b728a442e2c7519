"""A stage by itself: what it keeps of each micro-batch, and its backward whole and in parts."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.distributed.pipelining.stage import PipelineStage, handed_on, passed
from disttrain.errors import ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def alone(body):
    return on_ranks(body, 1)[0]


def line():
    m = nn.Linear(2, 2, bias=False)
    m.weight.data.copy_(dt.tensor([[1.0, 2.0], [3.0, 4.0]]))
    return m


def stage(index=1, count=3, module=None, **more):
    made = PipelineStage(module or line(), index, count, **more)
    made.begin()
    return made


def leaf(*values):
    return dt.tensor([values], requires_grad=True)


def test_where_a_stage_stands():
    def body():
        first, middle, last = (PipelineStage(line(), i, 3) for i in range(3))
        assert (first.is_first, first.is_last, middle.is_first, last.is_last) == (
            True,
            False,
            False,
            True,
        )
        assert (middle.group_rank, middle.group_size) == (0, 1)
        return repr(middle)

    assert alone(body).startswith("PipelineStage(1 of 3, ")


@pytest.mark.parametrize(("index", "count"), [(-1, 2), (2, 2), (0, 0)])
def test_numbers_of_stages_begin_at_0(index, count):
    def body():
        with pytest.raises(ConfigError, match="needed is 0 <= stage_index < num_stages"):
            PipelineStage(line(), index, count)

    alone(body)


def test_every_rank_needs_a_stage():
    def body():
        with pytest.raises(ConfigError, match="1 stages for a group of 2 ranks"):
            PipelineStage(line(), 0, 1)

    on_ranks(body)


def test_the_whole_backward_gives_gradients_of_what_came():
    def body():
        s, x = stage(), leaf(1.0, 1.0)
        out = s.forward(0, (x,), {}, received=True, keep=True)
        (g,) = s.backward(0, (dt.ones(1, 2),), last=True)
        assert out.tolist() == [[3.0, 7.0]] and x.grad is None  # it is handed back, not kept
        with pytest.raises(KeyError):
            s.backward(0, (dt.ones(1, 2),), last=True)
        return g.tolist(), s.submod.weight.grad.tolist()

    assert alone(body) == ([[4.0, 6.0]], [[1.0, 1.0], [1.0, 1.0]])


def test_micro_batches_are_kept_apart_and_forgotten():
    def body():
        s = stage()
        for micro, value in enumerate((1.0, 10.0)):
            s.forward(micro, (leaf(value, value),), {}, True, True)
        s.forward(2, (leaf(5.0, 5.0),), {}, True, keep=False)
        assert sorted(s._flights) == [0, 1]
        s.backward(1, (dt.ones(1, 2),), False)
        found = s.submod.weight.grad[0].tolist()
        s.begin()
        return found, len(s._flights)

    assert alone(body) == ([10.0, 10.0], 0)


def test_a_backward_in_two_parts_is_the_whole_one():
    def body():
        results = []
        for parts in (False, True):
            s, x, idle = (
                stage(module=nn.Bilinear(2, 2, 1, bias=False)),
                leaf(1.0, 2.0),
                dt.ones(1, 2),
            )
            s.submod.weight.data.fill_(0.5)
            s.forward(0, (x, idle), {}, True, True)
            if parts:
                found = s.backward_input(0, (dt.ones(1, 1),))
                assert s.submod.weight.grad is None
                s.backward_weight(0, last=True)
            else:
                found = s.backward(0, (dt.ones(1, 1),), True)
            results.append((found[0].tolist(), found[1], s.submod.weight.grad.tolist()))
        return results

    whole, parts = alone(body)
    assert whole == parts and whole[1] is None and whole[0] == [[1.0, 1.0]]


def test_where_nobody_waits_all_of_it_comes_later():
    def body():
        s = stage(0)
        s.forward(0, (dt.ones(1, 2),), {}, False, True)
        assert s.backward_input(0, (dt.ones(1, 2),)) == () and s.submod.weight.grad is None
        s.backward_weight(0, True)
        return s.submod.weight.grad.tolist()

    assert alone(body) == [[1.0, 1.0], [1.0, 1.0]]


def test_without_gradients_there_is_nothing_to_do():
    def body():
        s, x = stage(), leaf(1.0, 1.0)
        for micro in (0, 1):
            s.forward(micro, (x,), {}, True, True)
        assert s.backward_input(0, (None,)) == (None,)
        s.backward_weight(0, False)
        return s.backward(1, (None,), True), s.submod.weight.grad

    assert alone(body) == ((None,), None)


def test_the_last_stage_begins_at_its_loss():
    def body():
        s, x = stage(2), leaf(1.0, 1.0)
        out = s.forward(0, (x,), {}, True, True)
        s.set_loss(0, (out**2).sum() / 2)
        (g,) = s.backward(0, (dt.tensor(1.0),), True)
        return g.tolist()

    assert alone(body) == [[1 * 3.0 + 3 * 7.0, 2 * 3.0 + 4 * 7.0]]


def test_modules_that_put_gradients_of_weights_off_themselves():
    def body():
        calls = []
        s = stage(dw_builder=lambda: calls.append("built") or (lambda: calls.append("run")))
        s.forward(0, (leaf(1.0, 1.0),), {}, True, True)
        (g,) = s.backward_input(0, (dt.ones(1, 2),))
        calls.append("between")
        s.backward_weight(0, True)
        return calls, g.tolist()

    assert alone(body) == (["built", "between", "run"], [[4.0, 6.0]])


def test_what_is_handed_on():
    t = dt.ones(1)
    named = dt.max(dt.ones(2, 2), 0)
    assert handed_on(t) == (t,) and handed_on((t, 1)) == (t, 1) and handed_on([t, 1]) == (t, 1)
    assert handed_on(named) == (named,) and handed_on(None) == (None,)
    x = dt.ones(2, requires_grad=True)
    grown, plain, rest = passed((x * 2, dt.ones(1), {"k": [3, x]}))
    assert grown.is_leaf and grown.requires_grad and not plain.requires_grad
    assert rest["k"][0] == 3 and rest["k"][1] is not x
    assert rest["k"][1].data_ptr() == x.data_ptr()
