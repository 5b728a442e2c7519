"""Twins of modules: one object under a second name, with a forward of its own."""

from __future__ import annotations

import copy
import pickle

import disttrain as dt
from disttrain import nn
from disttrain.compile.modules import Forward, Twin, original, twin


def make():
    model = nn.Linear(2, 2)
    return model, twin(model, lambda x: "replayed")


def test_a_twin_shares_all_but_forward():
    model, other = make()
    assert isinstance(other, nn.Linear) and isinstance(other, Twin) and other is not model
    assert other(dt.ones(1, 2)) == "replayed" and model(dt.ones(1, 2)).shape == (1, 2)
    other.extra = 1
    model.eval()
    assert model.extra == 1 and not other.training and other.weight is model.weight
    assert type(other).__name__ == "Linear" and list(other.state_dict()) == ["weight", "bias"]


def test_the_original_is_known():
    model, other = make()
    assert original(other) is other._orig_mod is model and original(model) is model


def test_a_new_class_of_the_twin_is_the_modules():
    model, other = make()

    class Louder(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    other.__class__ = Louder
    assert type(model) is Louder and isinstance(other, (Louder, Twin))


def test_forwards_are_copied_with_their_module():
    model = nn.Linear(2, 2)
    run = Forward(model)
    other = copy.deepcopy(run)
    assert other.module is not model and run(dt.ones(1, 2)).shape == (1, 2)
    assert pickle.loads(pickle.dumps(run)).module.in_features == 2  # noqa: S301


def test_a_module_is_compiled_in_place():
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), dt.ones(1, 2)
    expected = model(x)
    assert model._compiled_call_impl is None
    model.compile(fullgraph=True)
    for _ in range(3):
        assert dt.equal(model(x), expected)
    assert "1 captured, 0 eager" in model._compiled_call_impl.explain()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert other._compiled_call_impl is None and dt.equal(other(x), expected)
    again = dt.compile(model)  # a twin of it
    assert dt.equal(again(x), expected) and list(again.state_dict()) == list(model.state_dict())
    model._compiled_call_impl = None
    assert "forward" not in vars(model) and dt.equal(model(x), expected)
    model.compile(disable=True)
    assert model._compiled_call_impl is None


def test_a_forward_of_one_module_alone_is_compiled_with_it():
    model, x = nn.Linear(2, 2), dt.ones(1, 2)
    model.forward = lambda x: x * 2
    model.compile()
    assert all(dt.equal(model(x), x * 2) for _ in range(4))
    assert "1 captured" in model._compiled_call_impl.explain()
    model._compiled_call_impl = None
    assert dt.equal(model(x), x * 2)


def test_a_forward_of_one_module_alone_is_what_its_twin_runs():
    model = nn.Linear(2, 2)
    model.forward = lambda x: x * 3.0
    run = dt.compile(model)
    for _ in range(3):
        assert run(dt.ones(2)).tolist() == [3.0, 3.0]
    assert len(run.forward.graphs) == 1
    run.forward = lambda x: x * 5.0
    assert run(dt.ones(2)).tolist() == model(dt.ones(2)).tolist() == [5.0, 5.0]
    del run.forward
    assert run(dt.ones(1, 2)).shape == (1, 2)


def test_a_module_whose_forward_is_its_own_compiled_one():
    model = nn.Linear(2, 2)
    expected = model(dt.ones(1, 2)).tolist()
    model.forward = dt.compile(model).forward
    for _ in range(3):
        assert model(dt.ones(1, 2)).tolist() == expected
