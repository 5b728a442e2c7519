"""Each row of the table against its meaning, with the batch anywhere and nowhere."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.func.batch_collectives import COLLECTIVES

X = np.random.default_rng(1).normal(size=(3, 3, 2))  # (example, element, rest)
PERM = ((0, 1), (2, 0))


def permuted(x):
    out = np.zeros_like(x)
    for source, target in PERM:
        out[target] = x[source]
    return out


MEANINGS = {
    "psum": lambda x: np.broadcast_to(x.sum(0), x.shape),
    "pvary": lambda x: x,
    "all_gather": lambda x: np.broadcast_to(x, (3, *x.shape)),
    "all_gather_same": lambda x: np.broadcast_to(x, (3, *x.shape)),
    "psum_scatter": lambda x: x.sum(0),
    "own_part": lambda x: np.stack([x[i, i] for i in range(3)]),
    "all_to_all": lambda x: np.swapaxes(x, 0, 1),
    "ppermute": permuted,
}


@pytest.mark.parametrize("at", [0, 1, 2, None])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_row_does_what_it_means(name, at):
    whole = np.broadcast_to(X[0], X.shape) if at is None else X
    given = dt.tensor(X[0] if at is None else np.moveaxis(X, 0, at).copy())
    out, dim = COLLECTIVES[name](given, at, 3, {"perm": PERM})
    wanted = MEANINGS[name](whole)
    got = (
        np.broadcast_to(out.numpy(), wanted.shape)
        if dim is None
        else np.moveaxis(out.numpy(), dim, 0)
    )
    np.testing.assert_allclose(got, wanted)
