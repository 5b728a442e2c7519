"""Who may write to what inside a transform: the same as in PyTorch."""

from __future__ import annotations

import warnings

import pytest

import disttrain as dt
from support.cases.captured_writes import ALLOWED, TRANSFORMS, programs, run

pytestmark = pytest.mark.peer
PROGRAMS = {**programs(), **ALLOWED}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_is_refused(name, transform):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = run(torch, transform, PROGRAMS[name])
    ours = run(dt, transform, PROGRAMS[name])
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), theirs
        return
    assert not isinstance(ours, Exception), ours
    assert ours.reshape(-1).tolist() == pytest.approx(theirs.reshape(-1).tolist(), rel=1e-5)
