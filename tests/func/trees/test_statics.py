"""Static arguments by place and by name."""

from __future__ import annotations

import pytest

from disttrain.func.trees.statics import Statics


def test_places_and_names_follow_from_each_other():
    def f(a, b, *, c):
        return a

    assert Statics(f, None, "b").argnums == (1,)
    assert Statics(f, 1, None).argnames == ("b",)
    dynamic, others, fixed = Statics(f, 1, None).split((1, 2), {"c": 3})
    assert (dynamic, others, fixed) == ((1, None), {"c": 3}, ((1, int, 2),))
    with pytest.raises(ValueError, match="invalid argnames"):
        Statics(f, None, "z")
