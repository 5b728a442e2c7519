"""Options of PyTorch's compiler: known names, their types, and what is told of them."""

from __future__ import annotations

import warnings

import pytest

import disttrain as dt
from disttrain.compile.options import BUDGET, GRAPHS, checked, known
from disttrain.errors import CaptureError


def f(x):
    return x * 2


def test_names_have_types():
    found = known()
    assert found["max_autotune"] == found[GRAPHS] == found["trace.enabled"] == "bool"
    assert found["cpp.threads"] == "int" and found[BUDGET] == "any" and len(found) > 600
    assert not any(":" in name for name in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"typo": 1}, "Unexpected optimization option typo; options are activation_memory_budget"),
        ({"max_autotun": True}, r"option max_autotun \(is it max_autotune\?\)"),
        ({"triton": True}, "Unexpected optimization option triton"),
        ({3: True}, "Unexpected optimization option 3"),
        ({"max_autotune": "yes"}, "Unexpected type of attr max_autotune, got str should be bool"),
        ({"epilogue_fusion": 1}, "got int should be bool"),
        ({GRAPHS: 1}, "got int should be bool"),
    ],
)
def test_other_names_and_types_are_refused(options, message):
    with pytest.raises(RuntimeError, match=message):
        dt.compile(f, options=options)
    assert dt.compile(f, options=options, backend="eager")(dt.ones(1)).item() == 2


def test_what_has_no_effect_is_told_once_for_all_of_them():
    with pytest.warns(
        UserWarning, match="options coordinate_descent_tuning, max_autotune$"
    ) as told:
        run = dt.compile(f, options={"max-autotune": True, "coordinate_descent_tuning": True})
    assert len(told) == 1 and told[0].filename == __file__
    assert run(dt.ones(1)).item() == run(dt.ones(1)).item() == 2


def test_what_has_an_effect_or_holds_anyway_is_not_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked({}) == {} and checked({"max-autotune": True} and {BUDGET: 0.5})
        assert checked({"fallback_random": True, GRAPHS: False}).keys() == {
            "fallback_random",
            GRAPHS,
        }


def test_options_are_a_dict():
    with pytest.raises(CaptureError, match=r"options=\['a'\] given; a dict"):
        dt.compile(f, options=["a"])


def test_words_that_no_compiler_knows_are_refused():
    with pytest.raises(TypeError, match="typo"):
        dt.compile(f, typo=1)


def test_a_backend_of_ones_own_is_told_mode_and_options():
    seen = []

    def backend(graph, inputs, **words):
        seen.append(words)
        return graph.run

    for words in ({}, {"mode": "default"}, {"mode": "max-autotune"}, {"options": {"mine": 1}}):
        assert dt.compile(f, backend=backend, **words)(dt.ones(1)).item() == 2
    assert seen == [{}, {}, {"mode": "max-autotune"}, {"options": {"mine": 1}}]


def test_a_limit_of_captures():
    run = dt.compile(lambda x, k: x * len(k), recompile_limit=2, name="mine")
    with pytest.warns(UserWarning, match="it was captured 2 times"):
        for k in ("a", "bb", "ccc", "dddd"):
            assert run(dt.ones(1), k).item() == len(k)
    assert len(run.graphs) == 2
