"""All modules of the table as programs, of fixed sizes and of any: the same bits after a file."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.core import wrap
from support.cases.exported import reread, same
from support.cases.nn_cases import ALL


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_modules(case, dynamic):
    module = getattr(nn, case.name)(*case.args, **case.kwargs).double()
    args = tuple(wrap(a.copy()) for a, _ in case.arrays())
    program = reread(dt.export(module, args, case.call, dynamic=dynamic))
    assert module.training  # it is as it was
    module.eval()
    with dt.no_grad():
        assert same(module(*args, **case.call), program(*args, **case.call))
