"""How values of transforms print."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.trees.batches import Batches
from disttrain.func.trees.derivatives import Derivatives
from disttrain.func.trees.printing import Names, numbers_of, text_of
from tests.support.borders import BORDER


def test_values_are_called_by_their_transform():
    seen = []
    look = lambda x: seen.append(text_of(x, False, Names(), lambda t: str(t.item()))) or x
    Batches(BORDER).vmap(look)(dt.ones(2))
    Derivatives(BORDER).grad(look)(dt.tensor(1.0))
    Derivatives(BORDER).jvp(look, (dt.tensor(1.0),), (dt.tensor(2.0),))
    look(dt.ones(1))
    assert seen == [
        "Batched(aval=float32[], batched=float32[2])",
        "Followed(primal=1.0, typeof(tangent)=f32[])", "Moved(primal=1.0, tangent=2.0)", None,
    ]  # fmt: skip


def test_numbers_are_read_where_they_are():
    errors = (lambda: ValueError("traced"), lambda: ValueError("leaked"))
    seen = []

    def look(x):
        with pytest.raises(ValueError, match="traced"):
            numbers_of(x, *errors)
        seen.append(x)
        return x

    Batches(BORDER).vmap(look)(dt.ones(2))
    with pytest.raises(ValueError, match="leaked"):
        numbers_of(seen[0], *errors)
    Derivatives(BORDER).grad(lambda x: seen.append(numbers_of(x, *errors)) or x)(dt.tensor(4.0))
    assert seen[1].item() == 4
