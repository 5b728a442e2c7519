"""Update rules on arrays: the numbers of each step, counts, several parameters at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain.backends.device.platform import platform
from disttrain.optim import rules
from disttrain.optim.rules import BEHIND, prepared, together

ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.5,
        "decoupled": False, "maximize": False}  # fmt: skip


def numbers(rule, t, *moving, **hyper):
    found = BEHIND[rule].numbers(t, *moving, **hyper)
    values = found[0] if moving else found
    return dict(zip(BEHIND[rule].update.scalars, values, strict=True)), found


def test_adam_corrects_both_moments():
    n, _ = numbers(rules.adam, 3, **ADAM)
    assert n["step_size"] == pytest.approx(0.1 / (1 - 0.9**3))
    assert n["root_scale"] == pytest.approx(1 / math.sqrt(1 - 0.99**3))
    assert (n["sign"], n["keep"], n["decay"]) == (1.0, 1.0, 0.5)
    n, _ = numbers(rules.adam, 3, **{**ADAM, "decoupled": True, "maximize": True})
    assert (n["sign"], n["keep"], n["decay"]) == (-1.0, 1 - 0.1 * 0.5, 0.0)
    assert n["one_minus_beta1"] == pytest.approx(0.1) and n["one_minus_beta2"] == pytest.approx(
        0.01
    )


def test_rates_that_fall_with_the_steps():
    hyper = {"lr": 1.0, "eps": 0.0, "weight_decay": 0.0, "maximize": False}
    assert numbers(rules.adagrad, 5, lr_decay=0.5, **hyper)[1][0] == pytest.approx(1 / 3)
    asgd = {
        "lambd": 0.5,
        "alpha": 2.0,
        "t0": 3.0,
        "lr": 1.0,
        "weight_decay": 0.0,
        "maximize": False,
    }
    found, (_, after) = numbers(rules.asgd, 7, [0.25, 0.5], **asgd)
    assert found["eta"] == 0.25 and after == [pytest.approx((1 + 0.5 * 7) ** -2.0), 0.25]
    assert BEHIND[rules.asgd].numbers(2, [0.25, 0.5], **asgd)[1][1] == 1.0  # not averaged yet


def test_a_product_that_goes_on_is_rounded_as_it_is_kept():
    hyper = {**ADAM, "momentum_decay": 0.004, "weight_decay": 0.0}
    product = np.float32(0.3)
    _, (_, (after,)) = numbers(rules.nadam, 2, [product], **hyper)
    now = 0.9 * (1 - 0.5 * 0.96 ** (2 * 0.004))
    assert after == np.float32(product * now).item()


def test_counts_go_on_and_arrays_are_changed_in_place():
    p, m, v, step = np.ones(4), np.zeros(4), np.zeros(4), np.zeros((), np.float32)
    run = prepared(rules.adam, {**ADAM, "weight_decay": 0.0})
    for t in range(1, 12):  # more than are remembered
        before = p.copy()
        run(p, np.full(4, 2.0), m, v, step)
        assert step == t
        np.testing.assert_allclose(before - p, 0.1, rtol=1e-6)
    np.testing.assert_allclose(m, 2.0 * (1 - 0.9**11))


def test_two_parameters_may_be_at_different_counts():
    run = prepared(rules.adam, {**ADAM, "weight_decay": 0.0})
    first, second = (
        [np.ones(1), np.zeros(1), np.zeros(1), np.full((), t, np.float32)] for t in (0, 9)
    )
    for p, m, v, step in (first, second):
        run(p, np.ones(1), m, v, step)
    assert first[0][0] == pytest.approx(0.9) and first[3] == 1 and second[3] == 10
    grown = 0.1 / (1 - 0.9**10) * 0.1 / (math.sqrt(0.01) / math.sqrt(1 - 0.99**10))
    assert second[0][0] == pytest.approx(1 - grown)


def test_complex_numbers_are_pairs_of_reals():
    z, g = np.array([1 + 1j, 2 - 1j]), np.array([1 - 2j, 0 + 1j])
    pairs = [np.stack([a.real, a.imag], -1).copy() for a in (z, g)]
    hyper = {"lr": 0.5, "weight_decay": 0.25, "maximize": False}
    prepared(rules.sgd, hyper)(z, g)
    prepared(rules.sgd, hyper)(*pairs)
    np.testing.assert_array_equal(np.stack([z.real, z.imag], -1), pairs[0])
    np.testing.assert_allclose(z[0], 1 + 1j - 0.5 * (1 - 2j + 0.25 * (1 + 1j)))


def test_every_rule_names_its_arrays_in_the_order_of_its_primitive():
    for prim, rule in BEHIND.items():
        count = 2 + len(rule.update.state) + len(rule.moving) + rule.counted
        assert len(prim.mutates) == count - 1, prim.name
        assert 1 not in prim.mutates, "the gradient stays"
    assert len({prim.name for prim in BEHIND}) == len(BEHIND)


@pytest.mark.parametrize("rule", [rules.adam, rules.asgd, rules.sgd], ids=lambda r: r.name)
def test_many_at_once_on_a_device_are_as_each_alone_on_the_host(double, rule):
    hyper = {
        rules.adam: {**ADAM, "weight_decay": 0.0},
        rules.asgd: {"lr": 0.1, "lambd": 0.01, "alpha": 0.75, "t0": 1.0, "weight_decay": 0.1,
                     "maximize": False},
        rules.sgd: {"lr": 0.1, "weight_decay": 0.1, "maximize": True},
    }[rule]  # fmt: skip
    behind, rng = BEHIND[rule], np.random.default_rng(0)

    def single(value):
        return np.asarray(value, np.float32)

    sets = []
    for shape, kind in (((3,), "f4"), ((2, 2), "f4"), ((5,), "f8"), ((2,), "c8")):
        arrays = [rng.standard_normal(shape).astype(kind) for _ in range(2)]
        arrays += [np.zeros(shape, kind) for _ in behind.update.state]
        sets.append([*arrays, *(single(0.5) for _ in behind.moving),
                     *([single(2.0)] if behind.counted else [])])  # fmt: skip
    cuda = platform("cuda")
    away = [[cuda.upload(a, 0) if a.ndim else a.copy() for a in one] for one in sets]
    together(rule, hyper)(away)
    for one, there in zip(sets, away, strict=True):
        prepared(rule, hyper)(*one)
        for a, b in zip(one, there, strict=True):
            found = cuda.download(b) if a.ndim else b
            np.testing.assert_allclose(found, a, rtol=1e-6, atol=1e-7)
