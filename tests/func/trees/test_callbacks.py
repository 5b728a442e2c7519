"""Functions of the host over trees of tensors."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.func.structured_bodies import aval
from disttrain.func.trees.callbacks import Callbacks
from disttrain.func.trees.programs import Programs
from tests.support.borders import BORDER

C = Callbacks(BORDER, aval, RuntimeError)


class Native(Programs):
    border = BORDER


def test_it_is_called_whenever_the_program_runs(capsys):
    host = lambda x: {"y": np.asarray(x) * 2}

    def f(x):
        C.debug_print("x={} {how}", x, how="now")
        return C.pure_callback(host, {"y": dt.ones(2)}, x)

    run = Native(f)
    for _ in range(2):
        assert run(dt.ones(2))["y"].tolist() == [2, 2]
    assert capsys.readouterr().out.count("now") == 2


def test_what_does_not_fit_is_told():
    with pytest.raises(RuntimeError, match="Mismatched result shape"):
        C.pure_callback(lambda x: np.ones(3), dt.ones(2), dt.ones(2))
    with pytest.raises(ValueError, match=r"Unused keyword arguments to `func\.debug"):
        C.debug_print("{}", 1, x=2)
