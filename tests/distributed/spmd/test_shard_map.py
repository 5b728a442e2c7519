"""A function of shards: over ranks as over the blocks of one process, and both as the whole."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import func as F
from disttrain.distributed.device_mesh import init_device_mesh
from disttrain.distributed.spmd import NotReplicated, shard_map
from disttrain.distributed.tensor import DTensor
from disttrain.distributed.tensor import PartitionSpec as P
from disttrain.errors import ConfigError, ShapeError
from support.simulated import on_ranks

rng = np.random.default_rng(0)
A = dt.tensor(rng.normal(size=(8, 12)).astype("f4"))
B = dt.tensor(rng.normal(size=(12, 4)).astype("f4"))
SIZES = {"x": 2, "y": 2}
BOTH = P(("x", "y"), None)

PROGRAMS = {
    "product": (lambda a, b: F.psum(a @ b, "y"), (P("x", "y"), P("y", None)), P("x")),
    "product scattered": (
        lambda a, b: F.psum_scatter(a @ b, "y", scatter_dimension=1, tiled=True),
        (P("x", "y"), P("y", None)),
        P("x", "y"),
    ),
    "rows": (lambda a, b: a.sin()[:, :4] * b.sum(), (BOTH, P()), BOTH),
    "gradient": (
        lambda a, b: F.grad(lambda b: F.psum((a @ b).sin().sum(), ("x", "y")))(b),
        (BOTH, P()),
        P(),
    ),
    "gradient of each": (
        lambda a, b: F.grad(lambda b: (a @ b).sin().sum())(b),
        (BOTH, P()),
        P(),
    ),
    "ring": (
        lambda a, b: F.ppermute(a, "x", [(0, 1), (1, 0)]) * b.sum(),
        (P("x"), P()),
        P("x", None),
    ),
    "exchange": (
        lambda a, b: F.all_to_all(a, "y", 1, 0, tiled=True) * b.sum(),
        (BOTH, P()),
        P("x", "y"),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_and_blocks_of_one_process_agree(name):
    f, ins, outs = PROGRAMS[name]
    one = shard_map(f, SIZES, ins, outs)
    value = one(A, B).numpy()
    grads = [g.numpy() for g in F.grad(lambda a, b: one(a, b).cos().sum(), (0, 1))(A, B)]

    def body():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
        over = shard_map(f, mesh, ins, outs)
        found = F.grad(lambda a, b: over(a, b).cos().sum(), (0, 1))(A, B)
        out = over(A, B)
        assert isinstance(out, DTensor)
        return out.full_tensor().numpy(), [_whole(g) for g in found]

    for got, of in on_ranks(body, 4):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-4)
        for g, wanted in zip(of, grads, strict=True):
            np.testing.assert_allclose(g, wanted, rtol=1e-3, atol=1e-3)


def _whole(t):
    return (t.full_tensor() if isinstance(t, DTensor) else t).numpy()


def test_it_is_the_function_of_the_whole():
    f, ins, outs = PROGRAMS["product"]
    np.testing.assert_allclose(
        shard_map(f, SIZES, ins, outs)(A, B).numpy(), (A @ B).numpy(), rtol=1e-4, atol=1e-5
    )
    whole = F.grad(lambda b: (A @ b).sin().sum())(B).numpy()
    for name in ("gradient", "gradient of each"):
        f, ins, outs = PROGRAMS[name]
        np.testing.assert_allclose(
            shard_map(f, SIZES, ins, outs)(A, B).numpy(), whole, rtol=1e-3, atol=1e-4
        )


def test_trees_of_specs():
    f = shard_map(
        lambda t: {"s": F.psum(t["a"].sum(), "x"), "t": [t["a"] * t["b"]]},
        {"x": 2},
        ({"a": P("x"), "b": P()},),
        {"s": P(), "t": P("x")},
    )
    out = f({"a": dt.arange(4.0), "b": dt.tensor(2.0)})
    assert out["s"].item() == 6.0
    assert out["t"][0].tolist() == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    ("ins", "outs", "error", "text"),
    [
        (P("x"), P(), NotReplicated, r"across mesh axis 'x', but could not infer"),
        (P(None, "x"), P("x"), ShapeError, r"in_specs is .* length 2, .* rank 1"),
        (
            P("y"),
            P("y"),
            ShapeError,
            r"array axis 0 \(of size 4\) to mesh axes .* 3 does not evenly",
        ),
        (P("x"), P(None, "x"), ShapeError, r"out_specs is .* length 2, .* rank 1"),
        ((P("x"), P()), P("x"), ConfigError, "in_specs="),
    ],
)
def test_errors(ins, outs, error, text):
    with pytest.raises(error, match=text):
        shard_map(lambda x: x, {"x": 2, "y": 3}, ins, outs)(dt.arange(4.0))


def test_unchecked_results_are_those_of_the_first():
    f = shard_map(lambda x: x, {"x": 2}, P("x"), P(), check=False, varying=False)
    assert f(dt.arange(4.0)).tolist() == [0.0, 1.0]
