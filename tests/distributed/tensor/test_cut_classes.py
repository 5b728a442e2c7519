"""Cross entropy of logits whose classes are cut: equal to that of whole ones."""

import itertools

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain.distributed.tensor import Replicate, Shard
from disttrain.errors import DimError
from support.meshes import numbers, run_on, spread

pytestmark = pytest.mark.simulated


def losses(logits, target, **how):
    """Loss and gradient of the logits."""
    x = logits.detach().clone().requires_grad_()
    loss = F.cross_entropy(x, target, **how)
    (loss * loss).sum().backward()
    return loss, x.grad


def targets(*values):
    return dt.tensor(values)


@pytest.mark.parametrize("classes", [6, 7, 2])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"label_smoothing": 0.2},
        {"ignore_index": 1},
        {"ignore_index": 1, "label_smoothing": 0.1, "reduction": "none"},
    ],
    ids=str,
)
def test_as_with_whole_classes(classes, how):
    logits = numbers(5, classes) * 3
    target = targets(*(k % classes for k in (0, 1, 5, 1, 3)))
    weights = dt.tensor(np.linspace(0.5, 2, classes))
    for weight in (None, weights):
        wanted = losses(logits, target, weight=weight, **how)

        def rank(mesh, wanted=wanted, weight=weight):
            whole = [Replicate()] * mesh.ndim
            own = spread(logits, mesh, [Shard(1)])
            w = None if weight is None else spread(weight, mesh, whole)
            found = losses(own, spread(target, mesh, whole), weight=w, **how)
            return [dt.allclose(a.full_tensor(), b) for a, b in zip(found, wanted, strict=True)]

        assert run_on((3,), rank) == [[True, True]] * 3


@pytest.mark.parametrize("axes", list(itertools.permutations([Shard(0), Shard(1)])), ids=str)
def test_rows_are_cut_by_another_axis(axes):
    logits, target = numbers(5, 7), targets(0, 6, 2, 3, 3)
    wanted = losses(logits, target)

    def rank(mesh):
        rows = [p if p == Shard(0) else Replicate() for p in axes]
        found = losses(spread(logits, mesh, axes), spread(target, mesh, rows))
        return [dt.allclose(a.full_tensor(), b) for a, b in zip(found, wanted, strict=True)]

    assert run_on((2, 2), rank) == [[True, True]] * 4


def test_logits_of_any_size():
    logits = dt.tensor([[1e4, -1e4, 0.0, 5.0], [float("-inf"), 2.0, float("-inf"), 1.0]])
    target = targets(0, 1)
    wanted = F.cross_entropy(logits, target).item()

    def rank(mesh):
        own = spread(logits, mesh, [Shard(1)])
        return F.cross_entropy(own, spread(target, mesh, [Replicate()])).full_tensor().item()

    assert run_on((2,), rank) == [pytest.approx(wanted)] * 2


@pytest.mark.parametrize("wrong", [4, -1, 99])
def test_a_target_that_is_no_class_is_told_on_every_rank(wrong):
    def rank(mesh):
        own = spread(numbers(2, 4), mesh, [Shard(1)])
        with pytest.raises(
            DimError, match=rf"Target {wrong} is out of bounds: there are 4 classes"
        ):
            F.cross_entropy(own, spread(targets(0, wrong), mesh, [Replicate()]))
        return True

    assert run_on((2,), rank) == [True, True]
