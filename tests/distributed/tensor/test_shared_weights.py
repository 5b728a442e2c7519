"""Modules that share a parameter still share it when tensor parallelism has spread both."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.core.random import manual_seed
from disttrain.distributed.tensor import Replicate, init_device_mesh
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=10, depth=2 * 2 * 3)

VOCAB, DIM = 10, 6
ROWS = RowwiseParallel(input_layouts=Replicate())
CLASSES = ColwiseParallel(output_layouts=Replicate())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, DIM), nn.Linear(DIM, VOCAB, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, t):
        return self.head(dt.tanh(self.emb(t)))


def made() -> Tied:
    manual_seed(1)
    return Tied().double()


def trained(m: nn.Module) -> np.ndarray:
    opt = optim.AdamW(m.parameters(), 0.1)
    t = dt.arange(VOCAB)
    for _ in range(3):
        F.cross_entropy(m(t), t.flip(0)).backward()
        opt.step()
        opt.zero_grad()
    w = m.emb.weight
    return (w if not hasattr(w, "full_tensor") else w.full_tensor()).detach().numpy()


def together(m, mesh) -> None:
    parallelize_module(m, mesh, {"emb": ROWS, "head": CLASSES})


def one_by_one(m, mesh) -> None:
    parallelize_module(m.head, mesh, CLASSES)
    parallelize_module(m.emb, mesh, ROWS)


@pytest.mark.parametrize("spread", [together, one_by_one])
def test_shared_weights_stay_shared(spread) -> None:
    def program() -> np.ndarray:
        dist.init_process_group()
        m = copy.deepcopy(made())
        spread(m, init_device_mesh("cpu", (3,)))
        assert m.head.weight is m.emb.weight
        assert len(list(m.parameters())) == 1
        return trained(m)

    expected = trained(made())
    for found in dist.simulate(program, 3).results:
        SUMS.equal(found, expected)


def test_weights_that_cannot_stay_shared_are_told() -> None:
    def program() -> None:
        dist.init_process_group()
        mesh = init_device_mesh("cpu", (1,))
        with pytest.warns(UserWarning, match="they become two parameters, which train apart"):
            parallelize_module(made(), mesh, {"emb": ColwiseParallel(), "head": CLASSES})
        with pytest.warns(UserWarning, match="emb.weight was shared with a module of the plan"):
            parallelize_module(made(), mesh, {"head": CLASSES})

    dist.simulate(program, 1)  # warnings are caught for all ranks of a process at once
