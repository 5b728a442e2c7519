"""What elements look like."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.data.pipeline import Pipeline, PipelineSpec, TensorSpec, specs

I64, F32 = np.dtype(np.int64), np.dtype(np.float32)


@pytest.mark.parametrize(
    ("made", "spec"),
    [
        (lambda p: p.range(3), TensorSpec((), I64)),
        (lambda p: p.range(3).batch(2), TensorSpec((None,), I64)),
        (lambda p: p.range(3).batch(2, drop_remainder=True), TensorSpec((2,), I64)),
        (lambda p: p.range(3).batch(2).map(lambda x: x.float() @ dt.ones(3, 2)[: len(x)]),
         TensorSpec((2,), F32)),
        (lambda p: p.range(3).batch(2).map(lambda x: (x, x.sum())),
         (TensorSpec((None,), I64), TensorSpec((), I64))),
        (lambda p: p.from_tensor_slices({"a": np.zeros((2, 3)), "t": ["x", "y"]}),
         {"a": TensorSpec((3,), np.dtype(np.float64)), "t": TensorSpec((), "string")}),
        (lambda p: p.range(3).window(2), PipelineSpec(TensorSpec((), I64))),
        (lambda p: p.range(3).padded_batch(2), TensorSpec((None,), I64)),
        (lambda p: p.range(3).enumerate(), (TensorSpec((), I64), TensorSpec((), I64))),
        (lambda p: p.range(3).flat_map(lambda x: p.from_tensors((x, "a"))),
         (TensorSpec((), I64), TensorSpec((), "string"))),
    ],
)  # fmt: skip
def test_of_pipelines(made, spec):
    assert made(Pipeline).element_spec == spec


def test_asking_draws_no_random_numbers():
    dt.manual_seed(3)
    wanted = dt.rand(2).tolist()
    dt.manual_seed(3)
    assert Pipeline.range(4).map(lambda x: x + dt.rand(1)).element_spec.shape == (1,)
    assert dt.rand(2).tolist() == wanted


def test_a_function_that_zeros_do_not_suit_gets_the_first_element():
    made = Pipeline.from_tensor_slices(["3", "4"]).map(lambda t: int(t))
    assert made.element_spec == TensorSpec((), I64)
    assert [x.item() for x in made] == [3, 4]


def test_fits():
    spec = (TensorSpec((None, 2), F32), TensorSpec(None, F32))
    assert specs.fits(spec, (np.zeros((5, 2)), np.zeros(()))) is None
    assert "shape" in specs.fits(spec, (np.zeros(5), np.zeros(())))
    assert "structure" in specs.fits(spec, np.zeros(5))


def test_merge():
    a, b = TensorSpec((2, 3), F32), TensorSpec((2, 4), F32)
    assert specs.merge(a, b) == TensorSpec((2, None), F32)
    assert specs.merge(a, TensorSpec((2,), F32)) == TensorSpec(None, F32)
    with pytest.raises(ValueError, match="differ"):
        specs.merge(a, (b,))
