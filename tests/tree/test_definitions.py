"""Forms of trees."""

from __future__ import annotations

import pytest

from disttrain.tree import Registry


def test_forms_are_walked_composed_and_filled():
    registry = Registry()
    form = registry.flatten([1, (2, 3)])[1]
    assert [str(c) for c in form.children()] == ["*", "(*, *)"]
    assert form.node_data() == (list, None) and form.children()[0].node_data() is None
    assert form.walk(lambda xs, data: sum(xs), lambda x: 10 * x, [1, 2, 3]) == 60
    inner = registry.flatten((0,))[1]
    assert str(form.compose(inner)) == "[(*,), ((*,), (*,))]"
    assert form == registry.flatten([0, (0, 0)])[1] and hash(form) == hash(
        registry.flatten([0, (0, 0)])[1]
    )
    with pytest.raises(ValueError, match="Too few leaves for Definition; expected 3, got 1"):
        form.unflatten([1])
