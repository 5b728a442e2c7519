"""Effects: done at once without a capture, else given to it and built again for replays."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import disttrain as dt
from disttrain import context
from disttrain.core.effects import Effect, performed, repeated


class Scaled(Effect):
    """Multiplies what it is given."""

    def __call__(self, *tensors):
        for t in tensors:
            t.array *= 3
        return len(tensors)


class Listener:
    """A capture, as far as effects know one."""

    def __init__(self):
        self.told = []
        self.effects = SimpleNamespace(perform=self.perform)

    def perform(self, name, effect, tensors, writes):
        self.told.append((name, effect, tensors, writes))
        return "captured"


def test_without_a_capture_an_effect_is_done_now():
    x = dt.ones(2)
    assert performed("scale", Scaled(), [x], [0]) == 1 and x.tolist() == [3, 3]


def test_a_capture_is_given_what_it_is_to_repeat():
    x, effect = dt.ones(2), Scaled()
    with context.interpreter(Listener()) as listener:
        assert performed("scale", effect, [x], [0]) == "captured"
    assert listener.told == [("scale", effect, (x,), (0,))] and x.tolist() == [1, 1]


def test_with_something_else_around_it_nothing_is_captured():
    x = dt.ones(2)
    with context.interpreter(object()):
        assert performed("scale", Scaled(), [x]) == 1
    with context.interpreter(Listener()) as listener, context.interpreter(object()):
        assert performed("scale", Scaled(), [x]) == 1
    assert listener.told == []


def reduce(tensors, op="sum", *, group=None):
    """Stands for a collective: writes to what it is given first."""
    for t in tensors if isinstance(tensors, list) else [tensors]:
        t.add_(10 if op == "sum" else 20)
    return group


def test_a_collective_is_repeated_with_its_arguments_on_other_tensors():
    x, y, other = dt.ones(1), dt.ones(1), dt.zeros(1)
    with context.interpreter(Listener()) as listener:
        assert repeated(reduce, False, [x, y], "max", group={"of": [other]})
    ((name, effect, tensors, writes),) = listener.told
    assert name == "reduce" and repr(effect) == "<reduce>"
    assert tensors == (x, y, other) and tuple(writes) == (0, 1), "those of the first argument"
    a, b, c = dt.zeros(1), dt.zeros(1), dt.ones(1)
    group = effect(a, b, c)
    assert a.item() == b.item() == 20 and group["of"][0] is c and x.item() == 1
    with pytest.raises(ValueError):
        effect(a)  # one tensor is missing


def test_a_kept_collective_holds_no_tensor_of_the_first_call():
    with context.interpreter(Listener()) as listener:
        repeated(reduce, False, dt.ones(1))
    effect = listener.told[0][1]
    assert [leaf for leaf in effect.leaves if isinstance(leaf, dt.Tensor)] == []


def test_what_is_only_started_or_not_captured_is_left_to_the_caller():
    assert not repeated(reduce, False, dt.ones(1))
    with context.interpreter(Listener()) as listener:
        assert not repeated(reduce, True, dt.ones(1))
    assert listener.told == []


def test_an_effect_says_itself_what_it_does():
    with pytest.raises(NotImplementedError):
        Effect()()
    assert Effect().settle(()) is None
