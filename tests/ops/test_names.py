"""Public functions are found again by their names."""

from __future__ import annotations

import copy
import pickle
import types

import pytest

import disttrain as dt
from disttrain.core import Primitive

MODULES = {"dt": dt, "functional": dt.nn.functional, "linalg": dt.linalg, "init": dt.nn.init}
PUBLIC = [
    (module, name)
    for module, space in MODULES.items()
    for name in dir(space)
    if isinstance(getattr(space, name), (types.FunctionType, Primitive)) and name[0] != "_"
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_a_function_is_pickled_by_name(module, name):
    function = getattr(MODULES[module], name)
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is copy.copy(function) is function


def test_fast_operations_take_pytorchs_keywords():
    x = dt.full((2,), 6.0)
    for name in ("mul", "add", "sub", "div", "maximum"):
        wanted = getattr(dt, name)(x, dt.full((2,), 2.0)).tolist()
        assert getattr(dt, name)(input=x, other=dt.full((2,), 2.0)).tolist() == wanted
        assert getattr(x, name)(other=dt.full((2,), 2.0)).tolist() == wanted
    for name in ("exp", "relu", "sqrt", "neg"):
        assert getattr(dt, name)(input=x).tolist() == getattr(dt, name)(x).tolist()


def test_sparse_results_go_where_they_are_told():
    x, out = dt.eye(3).to_sparse(), dt.empty(3, 3)
    cases = {"mul": (2,), "add": (x,), "neg": ()}
    for name, given in cases.items():
        assert getattr(x, name)(*given, out=out) is out
        assert out.tolist() == (dt.eye(3) * (-1 if name == "neg" else 2)).tolist()
