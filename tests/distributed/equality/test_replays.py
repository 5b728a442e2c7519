"""``same`` in compiled functions: what replays check."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.errors import ValuesDiffer
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def differs(call) -> str:
    """What is found to differ, behind the call or in it."""
    try:
        call()
        dist.barrier()
    except ValuesDiffer as error:
        return str(error)
    return ""


def on_two(body) -> None:
    """(That a function runs eagerly would be a warning, and so an error here.)"""
    found = on_ranks(body, 2)
    assert found[0] == found[1]


def test_every_replay_checks_the_values_of_then():
    def body():
        @dt.compile
        def step(x):
            y = (x * 2).tanh()
            dist.same(y, name="y")
            return y.sum()

        found = [differs(lambda i=i: step(dt.ones(3) * (i + (i == 3) * dist.get_rank())))
                 for i in range(5)]  # fmt: skip
        assert [bool(text) for text in found] == [False, False, False, True, False]
        assert "'y'" in found[3] and "test_replays.py" in found[3]
        assert "1 captured, 0 eager" in step.explain()
        return found

    on_two(body)


def test_a_training_step_checks_its_module_and_containers():
    def body():
        dt.manual_seed(0)
        model = dt.nn.Linear(3, 3)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        @dt.compile
        def step(x):
            optimizer.zero_grad()
            loss = model(x).tanh().square().mean()
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, dist.ReduceOp.AVG)
            optimizer.step()
            dist.same({"of": model, "and": [model.weight, "a text", None]}, name="after")
            return loss

        inputs = [dt.ones(2, 3) * (i + dist.get_rank()) for i in range(4)]
        assert [differs(lambda x=x: step(x)) for x in inputs] == [""] * 4
        if dist.get_rank():
            with dt.no_grad():
                model.bias += 1.0
        text = differs(lambda: step(inputs[0]))
        assert "'after', in [of].bias" in text or "['of'].bias" in text, text
        assert ", 0 eager" in step.explain()
        return text

    on_two(body)


def test_decorated_functions_and_gradients():
    def body():
        @dist.same("x", result=True)
        def inner(x, scale):
            return (x * scale).tanh()

        outer = dt.compile(lambda x: inner(x, 2.0).sum())
        for _ in range(3):
            x = dt.ones(3, requires_grad=True)
            assert differs(lambda x=x: outer(x).backward()) == "" and x.grad is not None
        assert ", 0 eager" in outer.explain()
        return differs(lambda: outer(dt.ones(3) * dist.get_rank()))

    on_two(body)


def test_numbers_of_python_run_eagerly_and_are_checked():
    def body():
        @dt.compile
        def scaled(x, lr):
            dist.same(lr, name="lr")
            return x * lr

        with pytest.warns(UserWarning, match="check numbers outside of the function"):
            scaled(dt.ones(2), 0.5)
        assert differs(lambda: scaled(dt.ones(2), 0.5)) == ""
        return differs(lambda: scaled(dt.ones(2), 0.5 + dist.get_rank()))

    on_two(body)
