"""Pruning: which elements go, what a module has then, several methods on one parameter."""

from __future__ import annotations

import math

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn.utils import prune


def filled(layer):
    with dt.no_grad():
        for p in layer.parameters():
            p.copy_((dt.arange(p.numel()) * 7 % 23 - 11.0).reshape(p.shape))
    return layer


def test_a_pruned_parameter_is_a_product_whose_gradient_the_original_gets():
    layer = filled(nn.Linear(3, 4))
    whole = layer.weight.detach().clone()
    prune.l1_unstructured(layer, "weight", 5)
    assert set(layer.state_dict()) == {"bias", "weight_orig", "weight_mask"}
    assert layer.weight_mask.sum() == 7 and prune.is_pruned(layer)
    layer(dt.ones(2, 3)).sum().backward()
    assert dt.equal(layer.weight_orig.grad, 2 * layer.weight_mask)
    smallest = whole.abs().reshape(-1).sort().values[:5].max()
    assert (whole[layer.weight_mask == 0].abs() <= smallest).all()
    with dt.no_grad():
        layer.weight_orig.mul_(2)
    layer(dt.ones(2, 3))  # the product is made again
    assert dt.equal(layer.weight.detach(), 2 * whole * layer.weight_mask)
    prune.remove(layer, "weight")
    assert set(layer.state_dict()) == {"bias", "weight"} and not prune.is_pruned(layer)
    assert isinstance(layer.weight, nn.Parameter) and (layer.weight == 0).sum() >= 5


def test_methods_follow_each_other_on_what_is_left():
    layer = filled(nn.Conv2d(3, 4, 3))
    prune.ln_structured(layer, "weight", 1, 2, dim=0)
    prune.random_unstructured(layer, "weight", 0.5)
    prune.random_structured(layer, "weight", 1, dim=1)
    (hook,) = [h.run for h in nn.hooks.of(layer, nn.hooks.FORWARD_PRE)]
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 3
    mask = layer.weight_mask
    assert (mask.sum((1, 2, 3)) == 0).sum() == 1  # a whole row of the first method
    assert mask.sum() <= 81 - 40


def test_all_are_pruned_as_one():
    a, b = filled(nn.Linear(3, 4)), filled(nn.Linear(4, 2))
    pairs = [(a, "weight"), (b, "weight")]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.5)
    assert a.weight_mask.sum() + b.weight_mask.sum() == 10
    scores = {(a, "weight"): dt.full((4, 3), 1e9)}
    prune.global_unstructured(pairs, prune.L1Unstructured, importance_scores=scores, amount=4)
    assert a.weight_mask.sum() + b.weight_mask.sum() == 6


def test_a_mask_and_scores_are_given():
    layer = filled(nn.Linear(3, 4))
    prune.custom_from_mask(layer, "bias", dt.tensor([1, 0, 1, 0]))
    assert (layer.bias == 0).tolist() == [False, True, False, True]
    prune.identity(layer, "weight")
    assert layer.weight_mask.all()
    t = dt.tensor([1.0, 2.0, 3.0])
    method = prune.L1Unstructured(1)
    assert method.prune(t).tolist() == [0.0, 2.0, 3.0]
    assert method.prune(t, importance_scores=-t + 3.5).tolist() == [1.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda m: prune.l1_unstructured(m, "weight", 20), ValueError),
        (lambda m: prune.l1_unstructured(m, "weight", 1.5), ValueError),
        (lambda m: prune.l1_unstructured(m, "weight", -1), ValueError),
        (lambda m: prune.l1_unstructured(m, "weight", "a"), TypeError),
        (lambda m: prune.remove(m, "weight"), ValueError),
        (lambda m: prune.random_structured(m, "bias", 1, dim=0), ValueError),
        (lambda m: prune.ln_structured(m, "weight", 1, math.inf, dim=4), IndexError),
        (lambda m: prune.global_unstructured(3, prune.L1Unstructured, amount=1), TypeError),
        (lambda m: prune.global_unstructured(
            [(m, "weight")], prune.RandomStructured, amount=1), TypeError),
        (lambda m: prune.custom_from_mask(m, "weight", dt.ones(2)), AssertionError),
    ],
)  # fmt: skip
def test_what_cannot_be_pruned_is_left_as_it_was(wrong, error):
    layer = nn.Linear(3, 4)
    with pytest.raises(error):
        wrong(layer)
    assert set(layer.state_dict()) == {"weight", "bias"} and not prune.is_pruned(layer)
    layer(dt.ones(1, 3))
