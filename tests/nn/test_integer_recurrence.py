"""A pass of integers by one operation: what its steps give, also compiled, saved and as ONNX."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.quantize.layers import recurrent

GIVEN = [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True, "batch_first": True}]


@pytest.fixture(params=[(k, g) for k in (nn.LSTM, nn.GRU) for g in GIVEN], ids=str)
def made(request):
    dt.manual_seed(0)
    kind, given = request.param
    return quantize.quantize_dynamic(kind(8, 12, **given)), dt.randn(5, 5, 8)


def _flat(result):
    if isinstance(result, tuple):
        return [t for part in result for t in _flat(part)]
    return [result]


def same(a, b):
    return all(x.equal(y) for x, y in zip(_flat(a), _flat(b), strict=True))


def test_it_gives_what_its_steps_give(made, monkeypatch):
    model, x = made
    found = model(x)
    monkeypatch.setattr(recurrent._IntegerStep, "as_one", lambda *args: None)
    for a, b in zip(_flat(found), _flat(model(x)), strict=True):
        assert a.shape == b.shape and (a - b).abs().max().item() < 1e-6


def test_it_is_one_operation_of_programs_of_any_length(made):
    model, x = made
    compiled = dt.compile(model)
    compiled(x)
    assert same(compiled(x), model(x))
    program = dt.export(model, (x,), dynamic={0: {0: "long", 1: "many"}})
    passes = [n for n in program.nodes if n.primitive == "integer_recurrence"]
    assert len(passes) == model.num_layers * model._directions
    other = dt.randn(7, 3, 8)
    assert same(program(other), model(other))


def test_what_needs_gradients_or_examples_goes_step_by_step(made):
    model, x = made
    each = dt.func.vmap(model)(dt.stack([x, x]))
    for a, b in zip(_flat(each), _flat(model(x)), strict=True):
        assert (a[1] - b).abs().max().item() < 1e-6
    one = quantize.quantize_dynamic(nn.LSTM(8, 12))
    state = dt.zeros(1, 5, 12), dt.ones(1, 5, 12, requires_grad=True)
    one(x, state)[0].sum().backward()
    assert state[1].grad.abs().sum().item() > 0


def test_onnxruntime_computes_the_same(made):
    pytest.importorskip("onnxruntime", reason="ONNX's packages are not installed")
    from support.onnx_runs import operators, written

    model, x = made
    out = written(
        _First(model), (x,), (dt.randn(2, 3, 8),), dynamic={"x": {0: "long", 1: "many"}}, tol=1e-5
    )
    assert operators(out).count("Scan") == model.num_layers * model._directions


class _First(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]
