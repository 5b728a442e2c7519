"""Operations and nodes of backward: every one, with the same bits as without."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.llvm.kernels.digest import digest
from disttrain.record import rows
from support.recordings import only, train

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize("level", ["collectives", "modules", "ops"])
def test_the_bits_are_those_of_an_ordinary_run(tmp_path, level):
    plain, recorded = train(None, p=0.3), train(tmp_path, level, p=0.3)
    assert all(np.array_equal(a, b) for a, b in zip(plain, recorded, strict=True))


def test_results_inputs_and_lines(tmp_path):
    a, b = dt.randn(3), dt.randn(3)
    with dt.record(tmp_path):
        c = a * b
        c.exp()
    product, exp = only(tmp_path)
    assert (product.name, product.hash) == ("mul", digest(c.array).hash)
    assert product.inputs == (digest(a.array).hash, digest(b.array).hash)
    assert exp.inputs == (product.hash,)
    assert "test_operations.py:" in product.site


def test_writes_count(tmp_path):
    a = dt.ones(3)
    with dt.record(tmp_path):
        a.add_(1)
        a.mul(2)
    found = only(tmp_path)
    assert found[-1].inputs[0] == digest(a.array).hash
    assert found[-2].hash == digest(a.array).hash


def test_nodes_of_backward_with_the_module_they_are_of(tmp_path):
    train(tmp_path, steps=1)
    nodes = [r for r in only(tmp_path) if r.kind == rows.NODE]
    assert {r.module for r in nodes} >= {"Net.first", "Net.norm", "Net.second"}
    leaves = [r.name for r in nodes if r.about == "gradient of a leaf"]
    assert "Net.first.weight" in leaves


def test_a_gradient_that_comes_twice_is_measured_as_their_sum(tmp_path):
    x = dt.randn(4).requires_grad_()
    with dt.record(tmp_path):
        y = x * 2
        (y.exp() + y.sin()).sum().backward()
    [node] = [r for r in only(tmp_path) if r.kind == rows.NODE and r.name == "MulBackward0"]
    assert node.inputs == (digest((x.grad / 2).array).hash,)


@pytest.mark.parametrize("create", [False, True])
def test_second_derivatives_and_checkpoints_go_on(tmp_path, create):
    x = dt.randn(4).requires_grad_()
    with dt.record(tmp_path):
        y = dt.autograd.grad((x**3).sum(), x, create_graph=create)[0]
        if create:
            y.sum().backward()
    assert (x.grad is not None) == create
    assert [r for r in only(tmp_path) if r.phase == rows.BACKWARD]


def test_transforms_go_on(tmp_path):
    with dt.record(tmp_path):
        found = dt.func.vmap(lambda a: (a * a).sum())(dt.ones(3, 2))
        rate = dt.func.grad(lambda a: (a * a).sum())(dt.ones(2))
    assert (found.tolist(), rate.tolist()) == ([2.0, 2.0, 2.0], [2.0, 2.0])


def test_draws_have_a_row_before_them(tmp_path):
    with dt.record(tmp_path):
        dt.nn.functional.dropout(dt.ones(4), 0.5)
    found = only(tmp_path)
    assert (found[0].kind, found[0].name) == (rows.RANDOM, "before dropout_mask")
