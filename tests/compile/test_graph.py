"""Graphs as data: verification, text, and what a run leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import Var, capture
from disttrain.errors import CaptureError


def small():
    return capture(lambda x: (x * 2).sum())(dt.ones(3))[1]


def test_text():
    assert str(small()).splitlines() == [
        "graph(%0: float32[3]):",
        "  %1: float32[3] = mul(%0, 2.0)",
        "  %2: float32[] = sum(%1, dims=(0,), keepdim=False)",
        "  return %2",
    ]


def test_verify_names_what_is_wrong():
    graph = small()
    first, second = graph.instructions
    for broken, message in (
        ((second, first), r"instruction 0 \(sum\) uses %1 undefined"),
        ((first, first, second), r"instruction 1 \(mul\) defines %1 again"),
        ((), "output %2 is not defined"),
    ):
        with pytest.raises(CaptureError, match=message):
            graph.with_instructions(broken)
    wrong = {**graph.metas, Var("v", 1): ((4,), graph.metas[Var("v", 1)][1])}
    with pytest.raises(CaptureError, match=r"gives %1 as float32\[4\]; its shape rule says"):
        replace(graph, metas=wrong).verify()


def test_tensors_from_outside_have_names_and_rules_are_whole():
    model = nn.Linear(2, 1)
    optimizer = dt.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    text = str(capture(step)(dt.ones(4, 2))[1])
    assert "c0: float32[1, 2]  # weight" in text and "# AdamW state 0.exp_avg" in text
    assert " = linear_backward(" in text and "c0.grad = %" in text


def test_writes_through_views_count_for_their_base():
    outside = dt.zeros(4)

    def fn():
        outside[1:3].fill_(5.0)

    _, graph = capture(fn)()
    outside.zero_()
    before = outside._version
    graph.run()
    assert outside.tolist() == [0.0, 5.0, 5.0, 0.0] and outside._version == before + 1


def test_a_number_that_was_read_must_still_hold():
    scale = dt.tensor(3.0)
    _, graph = capture(lambda x: x * scale.item())(dt.ones(2))
    assert graph.run(dt.ones(2))[0].tolist() == [3.0, 3.0]
    scale.fill_(4.0)
    with pytest.raises(CaptureError, match="written to since"):
        graph.run(dt.ones(2))


def test_a_gradient_that_the_program_uses_must_be_there():
    p = dt.ones(2, requires_grad=True)
    p.grad = dt.ones(2)
    _, graph = capture(lambda: (p * 2).sum().backward())()
    p.grad = dt.zeros(2)
    graph.run()
    assert p.grad.tolist() == [2.0, 2.0]
    p.grad = None
    with pytest.raises(CaptureError, match=r"has no \.grad now"):
        graph.run()


def test_gradients_that_are_dropped_first_are_gone_before_all_else():
    """So that their memory is free for the new ones; one that is put back is put back."""
    p, q = (dt.ones(2, requires_grad=True) for _ in range(2))

    def step(x):
        kept, p.grad, q.grad = q.grad, None, None
        (p * x).sum().backward()
        q.grad = kept

    p.grad, q.grad = dt.zeros(2), dt.zeros(2)
    graph = capture(step)(dt.ones(2))[1]
    assert [graph.captured[v.number] is p for v in graph.dropped] == [True]
    q.grad = own = dt.full((2,), 7.0)
    graph.run(dt.full((2,), 3.0))
    assert p.grad.tolist() == [3.0, 3.0] and q.grad is own


def test_gradients_that_are_dropped_later_stay_until_the_end():
    p = dt.ones(2, requires_grad=True)

    def step(x):
        loss = (p * x).sum()
        p.grad = None
        loss.backward()

    p.grad = dt.zeros(2)
    graph = capture(step)(dt.ones(2))[1]
    assert graph.dropped == ()
    graph.run(dt.full((2,), 3.0))
    assert p.grad.tolist() == [3.0, 3.0]
