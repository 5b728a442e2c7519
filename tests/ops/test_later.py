"""What is loaded when it is first asked for: names, methods, and that nothing else loads it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import disttrain as dt
from disttrain.ops import later
from disttrain.ops.methods import LATER


def test_the_list_is_that_of_the_module():
    assert sorted(LATER) == sorted(later.__all__)
    assert set(LATER) <= set(dir(dt))


@pytest.mark.parametrize("name", LATER)
def test_a_name_is_the_function(name):
    assert getattr(dt, name) is getattr(later, name)
    assert getattr(later, name).__doc__
    if name in vars(dt.Tensor):
        assert getattr(dt.Tensor, name) is getattr(later, name)


def test_a_program_that_asks_for_none_loads_none():
    code = (
        "import sys, disttrain as dt; dt.ones(2).exp()\n"
        "assert 'qr' in dir(dt) and 'disttrain.ops.later' not in sys.modules\n"
        "assert not [m for m in sys.modules if m.startswith('disttrain.ops.primitives.factors')]\n"
        "q, r = dt.eye(2).qr(); assert type(dt.Tensor.qr).__name__ == 'function'\n"
        "class Mine(dt.Tensor): pass\n"
        "assert Mine.svd is dt.svd"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
