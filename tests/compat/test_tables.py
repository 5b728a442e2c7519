"""Functions under a face's parameters."""

from __future__ import annotations

import pytest

from disttrain.compat.tables import passing


def test_functions_under_other_parameters():
    fn = passing("add", "x _name=None y=2", lambda x, y: (x, y))
    assert fn(1) == (1, 2) and fn(1, "sum", 3) == (1, 3) and fn(y=4, x=5) == (5, 4)
    assert fn.__name__ == "add" and list(fn.__signature__.parameters) == ["x", "name", "y"]
    with pytest.raises(TypeError, match="'z'"):
        fn(1, z=2)
