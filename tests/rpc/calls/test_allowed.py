"""What other workers may name."""

from __future__ import annotations

import os

import pytest

from disttrain.errors import UnknownName
from disttrain.rpc.calls.allowed import check_allowed, check_home, check_method

ALLOWED = frozenset(("models", "tools.safe"))


@pytest.mark.parametrize(
    "name",
    [("models", "Net"), ("models.parts", "Head"), ("tools.safe", "f"), ("builtins", "list"),
     ("collections", "OrderedDict"), ("disttrain.core.tensor", "Tensor")],
)  # fmt: skip
def test_modules_packages_and_plain_data(name):
    check_allowed(*name, ALLOWED)


@pytest.mark.parametrize(
    "name",
    [("os", "system"), ("builtins", "eval"), ("builtins", "getattr"), ("modelsx", "f"),
     ("tools", "f"), ("subprocess", "Popen"), ("collections", "abc")],
)  # fmt: skip
def test_all_else_is_refused_with_what_to_do(name):
    with pytest.raises(UnknownName, match=r"callable_modules allows models, tools\.safe; add"):
        check_allowed(*name, ALLOWED)


def test_names_of_other_modules_are_where_they_are_from():
    with pytest.raises(UnknownName, match="posix"):
        check_home("models", "system", os.system, ALLOWED)
    with pytest.raises(UnknownName, match="no function and no class"):
        check_home("models", "environ", os.environ, ALLOWED)


def test_methods_that_lead_out_of_a_value():
    class Plain:
        def go(self):
            return 1

    allowed = frozenset((__name__,))
    check_method(Plain(), "go", allowed)
    check_method([1], "append", allowed)
    check_method(Plain(), "__class__", None)  # not limited
    for name in ("__class__", "__reduce_ex__", "__getattribute__", "__init_subclass__"):
        with pytest.raises(UnknownName, match="may not be called by other workers"):
            check_method(Plain(), name, allowed)
