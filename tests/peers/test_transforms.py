"""Random compositions of transforms give what PyTorch's give."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from peers.generators.transforms import draw, run

import disttrain as dt

pytestmark = pytest.mark.peer
EACH, TOGETHER = 400, 25


@pytest.mark.parametrize("first", range(0, EACH, TOGETHER))
@pytest.mark.filterwarnings("ignore")
def test_transforms_of_drawn_functions(first):
    torch = importlib.import_module("torch.func") and importlib.import_module("torch")
    for seed in range(first, first + TOGETHER):
        program = draw(seed)
        wanted = run(program, torch)
        if isinstance(wanted, Exception):
            continue
        found = run(program, dt)
        assert not isinstance(found, Exception), (program, found)
        assert found.shape == wanted.shape, program
        close = np.allclose(found, wanted, 1e-4, 1e-6, equal_nan=True)
        assert close, (program, found, wanted)
