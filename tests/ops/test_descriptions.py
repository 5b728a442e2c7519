"""Sentences for functions without a text: each has a subject, and none is replaced."""

from __future__ import annotations

import types

import disttrain as dt
from disttrain import ops
from disttrain.core.tensor import Tensor
from disttrain.ops import descriptions


def test_every_sentence_is_of_a_function_or_a_method_and_ends():
    for name, text in descriptions._texts().items():
        assert any(hasattr(place, name) for place in (ops, Tensor, ops.linalg)), name
        assert text.endswith(".") and len(text) > 10, name
    lines = "".join(
        (descriptions._ELEMENTWISE, descriptions._COMPARING, descriptions._SHAPES,
         descriptions._MAKING, descriptions._ABOUT)
    ).splitlines()  # fmt: skip
    assert len(descriptions._texts()) == sum(map(bool, lines)), "a name stands twice"


def test_public_functions_have_their_sentence():
    assert dt.mul.__doc__ == "The product."
    assert Tensor.numel.__doc__ == "The number of elements."
    assert Tensor.T.__doc__.startswith("A view with the dimensions the other way")
    assert dt.isnan.__doc__.startswith("Whether elements are NaN")


def test_a_text_that_is_there_stays():
    def mul():
        """My own."""

    def ceil():
        pass

    place = types.SimpleNamespace(mul=mul, ceil=ceil, floor=None)
    descriptions.describe(place)
    assert mul.__doc__ == "My own." and ceil.__doc__.startswith("The least integer")
