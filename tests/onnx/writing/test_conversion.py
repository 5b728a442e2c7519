"""From nodes to operators: names, constants, what has no counterpart."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import ExportError
from disttrain.onnx.writing import conversion
from disttrain.onnx.writing.entry import export
from support.cases.drawn_models import drawn
from support.onnx_runs import operators, written

OPSETS = (23, 18, 20, 17, 21, 25, 26)


@pytest.mark.parametrize("seed", range(0, 300, 13))
def test_drawn_models(seed):
    """All 300 are compared by tests/peers/test_onnx_models.py."""
    made = drawn(seed)
    written(made.model, *made.given, dynamic=made.dynamic, opset_version=OPSETS[seed % 7])


def test_values_keep_the_names_of_the_program():
    program = dt.export(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
                        (dt.randn(2, 3),))  # fmt: skip
    made = export(program)
    told = {v.name for v in made.model_proto.graph.value_info}
    assert told == {o for n in program.nodes[:-1] for o in n.outputs}


def test_shapes_inside_have_names_of_dimensions():
    made = export(lambda x: dt.cat([x, x], 0).exp().sum(1), (dt.randn(2, 3),),
                  dynamic=({0: "n"},))  # fmt: skip
    shapes = {v.name: v.type.tensor_type.shape.dim[0].dim_param for v in
              made.model_proto.graph.value_info}  # fmt: skip
    assert shapes == {"cat": "2*n", "exp": "2*n"}


def test_what_rules_do_not_have_is_named():
    with pytest.raises(ExportError, match=r"igamma in 0 \(.*: it has no counterpart"):

        class Odd(nn.Module):
            def forward(self, x):
                return dt.special.gammainc(x, x)

        export(nn.Sequential(Odd()), (dt.rand(2),))


def test_problems_inside_of_bodies_are_told():
    with pytest.raises(ExportError, match="lgamma"):
        export(lambda x: dt.func.cond(x.sum() > 0, dt.lgamma, lambda a: a, (x,)), (dt.rand(2),))


def test_values_that_nothing_needs_are_not_looked_at():
    made = written(lambda x: (dt.lgamma(x), x + 1)[1], (dt.rand(2),))
    assert operators(made) == ["Add"]


def test_a_dimension_with_one_size_is_pinned():
    program = dt.export(lambda x: x.view(-1, 2).sum(1), (dt.randn(4),), dynamic=({0: "n"},))
    assert conversion.pinned(program) == []
    assert conversion.hints(program) == {"n": 7}


def test_what_must_hold_of_sizes_is_told_in_the_model():
    def fn(x):
        return x * 2 if x.shape[0] > 3 else x

    made = export(fn, (dt.randn(4),), dynamic=({0: "n"},))
    (prop,) = made.model_proto.metadata_props
    assert prop.key == "disttrain.sizes" and prop.value == "n: at least 4"
    made = export(lambda x: x.view(-1, 2), (dt.randn(4),), dynamic=({0: "n"},))
    assert "2*(n // 2) == n at " in made.model_proto.metadata_props[0].value
