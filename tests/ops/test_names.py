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
