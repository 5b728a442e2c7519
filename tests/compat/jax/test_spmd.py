"""pmap and shard_map: steps of training on devices as on one, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import lax
from disttrain.compat.jax.parallel import shard_map_old
from disttrain.compat.jax.sharding import Mesh
from disttrain.compat.jax.sharding import PartitionSpec as P
from disttrain.context import Rank, attach
from disttrain.distributed.spmd import simulate

X = np.arange(4, dtype="f4")


@pytest.fixture(autouse=True)
def eight():
    with attach(Rank()):
        simulate(8)
        yield


def line(n=4):
    return Mesh(np.array(jax.devices()[:n]), ("i",))


def same(got, wanted):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-6)


def test_gradients_of_sums_are_jaxs():
    squares = jax.grad(lambda x: lax.psum(x * x, "i").sum())
    same(jax.pmap(squares, axis_name="i")(X), 8 * X)
    same(jax.shard_map(squares, mesh=line(), in_specs=P("i"), out_specs=P("i"))(X), 2 * X)
    unchecked = jax.shard_map(
        squares, mesh=line(), in_specs=P("i"), out_specs=P("i"), check_vma=False
    )
    same(unchecked(X), 8 * X)
    of_w = jax.grad(lambda w, x: (w * x).sum())
    same(jax.shard_map(of_w, mesh=line(), in_specs=(P(), P("i")), out_specs=P())(3.0, X), 6.0)
    same(jax.pmap(of_w, in_axes=(None, 0))(3.0, X), X)


def test_pmap_takes_trees_axes_and_statics():
    f = jax.pmap(lambda d, k, n: {"s": d["a"] * k + n}, in_axes=({"a": 1}, None, None),
                 out_axes={"s": -1}, static_broadcasted_argnums=2)  # fmt: skip
    a = np.arange(6, dtype="f4").reshape(3, 2)
    out = f({"a": a}, 2.0, 5)["s"]
    same(out, a * 2 + 5)
    assert out.sharding.spec == P(None, "_internal_pmap_axis_name")
    same(jax.pmap(lambda x, y: x + y)(X, y=X), 2 * X)
    same(jax.pmap(lambda x: lax.psum(x, "i"), "i", out_axes=None)(X), 6.0)
    same(
        jax.pmap(jax.vmap(lambda x: x / lax.psum(x, "i")), "i")(np.ones((4, 3), "f4")),
        np.full((4, 3), 0.25),
    )
    nested = jax.pmap(jax.pmap(lambda x: lax.psum(x, ("i", "j")), "j"), "i")
    same(nested(np.ones((2, 3), "f4")), np.full((2, 3), 6.0))
    count = []
    g = jax.pmap(lambda x: count.append(1) or x)
    g(X), g(X)
    assert len(count) == 1


def test_groups_of_an_axis_are_summed_apart():
    groups = [[0, 2], [3, 1]]
    for op, wanted in {
        lax.psum: [2, 4, 2, 4], lax.pmean: [1, 2, 1, 2], lax.pmax: [2, 3, 2, 3],
        lax.pmin: [0, 1, 0, 1], lax.all_gather: [[0, 2], [3, 1], [0, 2], [3, 1]],
    }.items():  # fmt: skip
        f = lambda x, op=op: op(x, "i", axis_index_groups=groups)
        same(jax.pmap(f, "i")(X), wanted)
    of_sums = jax.grad(lambda x: (lax.psum(x, "i", axis_index_groups=groups) ** 2).sum())
    same(jax.pmap(of_sums, "i")(X), [8, 16, 8, 16])
    with pytest.raises(ValueError, match="4 places once"):
        jax.pmap(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1]]), "i")(X)


def test_shard_map_multiplies_matrices():
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("i", "j"))
    a = np.random.default_rng(0).normal(size=(8, 16)).astype("f4")
    b = np.random.default_rng(1).normal(size=(16, 4)).astype("f4")
    product = jax.shard_map(
        lambda a, b: lax.psum(a @ b, "j"), mesh=mesh, in_specs=(P("i", "j"), P("j", None)),
        out_specs=P("i", None),
    )  # fmt: skip
    for f in (product, jax.jit(product)):
        np.testing.assert_allclose(np.asarray(f(a, b)), a @ b, rtol=1e-4, atol=1e-5)
    g = jax.grad(lambda b: (product(a, b) ** 2).sum())(b)
    np.testing.assert_allclose(np.asarray(g), 2 * a.T @ (a @ b), rtol=1e-3, atol=1e-3)
    old = shard_map_old(lambda a: a.sum(keepdims=True), mesh, P("i", "j"), P("i", "j"))
    assert old(a).shape == (4, 2)
    with mesh:
        part = jax.shard_map(
            lambda x: lax.psum(x, "j"), in_specs=P("j"), out_specs=P(), axis_names={"j"}
        )
        same(part(X), X[:2] + X[2:])
    decorated = jax.shard_map(mesh=line(), in_specs=P("i"), out_specs=P("i"))(lambda x: x * 2)
    same(decorated(X), 2 * X)


REFUSED = {
    "varies": (P("i"), P(), ValueError, "require replication which can't be statically inferred"),
    "uneven": (P("i"), P("i"), ValueError, "that are not evenly divisible by the corresponding"),
    "long": (P(None, "i"), P("i"), ValueError, "in_specs entry which is too long to be compatible"),
    "long result": (P("i"), P(None, "i"), ValueError, "out_specs entry which is too long"),
    "axis": (
        P("k"),
        P("i"),
        ValueError,
        "in_specs argument must refer to an axis marked as manual",
    ),
    "count": ((P("i"), P()), P("i"), ValueError, "different lengths of tuple at key path"),
    "no spec": ("i", P("i"), TypeError, "must be a pytree of `jax.sharding.PartitionSpec`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_specs_that_are_refused(name):
    ins, outs, error, text = REFUSED[name]
    x = X[:3] if name == "uneven" else X
    with pytest.raises(error, match=text):
        jax.shard_map(lambda x: x, mesh=line(), in_specs=ins, out_specs=outs)(x)


def test_calls_that_are_refused():
    with pytest.raises(ValueError, match="The context mesh cannot be empty"):
        jax.shard_map(lambda x: x, in_specs=P("x"), out_specs=P("x"))(X)
    with pytest.raises(ValueError, match="requires 9 logical devices, but only 8 XLA devices"):
        jax.pmap(lambda x: x)(np.ones(9))
    with pytest.raises(ValueError, match="at least one argument with a mapped axis"):
        jax.pmap(lambda x: x, in_axes=None)(X)
    with pytest.raises(ValueError, match="inconsistent sizes"):
        jax.pmap(lambda x, y: x)(X, X[:3])
    with pytest.raises(ValueError, match="requires 3 logical devices, but only 2"):
        jax.pmap(lambda x: x, devices=jax.devices()[:2])(X[:3])
    with pytest.raises(NameError, match="unbound axis name: z"):
        jax.pmap(lambda x: lax.psum(x, "z"))(X)


STEP = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def loss(p, x, y):
    h = jnp.tanh(x @ p["w1"] + p["b1"])
    return jnp.mean((h @ p["w2"] + p["b2"] - y) ** 2)

def init():
    r = np.random.default_rng(0)
    return {"w1": r.normal(size=(4, 8)).astype("f4"), "b1": np.zeros(8, "f4"),
            "w2": r.normal(size=(8, 1)).astype("f4"), "b2": np.zeros(1, "f4")}

def step(p, x, y):
    l, g = jax.value_and_grad(loss)(p, x, y)
    g, l = lax.pmean((g, l), "batch")
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), l

rank, n, own = jax.process_index(), jax.device_count(), jax.local_device_count()
X = np.random.default_rng(1).normal(size=(16, 4)).astype("f4")
Y = X.sum(1, keepdims=True)
parts = [a.reshape(n, -1, a.shape[-1])[rank * own : (rank + 1) * own] for a in (X, Y)]
p = jax.tree.map(lambda a: jnp.stack([a] * own), init())
on_all = jax.pmap(step, axis_name="batch")
q = init()
one = jax.jit(lambda p: jax.tree.map(lambda a, b: a - 0.1 * b, p, jax.grad(loss)(p, X, Y)))
for _ in range(4):
    p, l = on_all(p, *parts)
    q = one(q)
for k in q:
    np.testing.assert_allclose(np.asarray(p[k])[0], np.asarray(q[k]), rtol=1e-5, atol=1e-6)

mesh = Mesh(np.array(jax.devices()).reshape(-1, 2 if n > 2 else 1), ("data", "model"))
rows, cols = NamedSharding(mesh, P("data", None)), NamedSharding(mesh, P(None, "model"))
w = np.ones((4, 6), "f4")
f = jax.jit(lambda x, w: jnp.sin(x @ w).sum(0), in_shardings=(rows, cols),
            out_shardings=NamedSharding(mesh, P("model")))
x = jax.device_put(X, rows)
for _ in range(2):
    out = f(x, jax.device_put(w, cols))
whole = (lambda a: multihost_utils.process_allgather(a, tiled=True)) if own < n else np.asarray
np.testing.assert_allclose(whole(out), np.sin(X @ w).sum(0), rtol=1e-4, atol=1e-5)
assert out.sharding.spec == P("model"), out.sharding
g = jax.jit(jax.grad(lambda w, x: jnp.mean((x @ w) ** 2)))(jax.device_put(w, cols), x)
np.testing.assert_allclose(whole(g), 2 * X.T @ (X @ w) / 96, rtol=1e-4, atol=1e-5)
product = jax.shard_map(lambda a, b: lax.psum(a @ b, "model"), mesh=mesh,
                        in_specs=(P("data", "model"), P("model", None)), out_specs=P("data"))
for h in (product, jax.jit(product)):
    np.testing.assert_allclose(whole(h(x, w)), X @ w, rtol=1e-4, atol=1e-5)
if own < n:
    assert repr(x) == "Array(shape=(16, 4), dtype=float32)"
    try:
        np.asarray(x)
    except RuntimeError as error:
        assert "spans non-addressable" in str(error)
    else:
        raise AssertionError("read")
multihost_utils.sync_global_devices("end")
print("done", n)
"""

WAYS = {
    "eight simulated": (["-m", "disttrain.compat.jax", "--simulate", "8"], 1),
    "one rank": (["-m", "disttrain_launcher", "--as-jax", "--nproc-per-node", "1"], 1),
    "two ranks": (["-m", "disttrain_launcher", "--as-jax", "--nproc-per-node", "2"], 2),
    "four ranks": (["-m", "disttrain_launcher", "--as-jax", "--nproc-per-node", "4"], 4),
    "four in one process": (["-m", "disttrain_launcher", "--as-jax", "--simulate", "4"], 4),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_step_on_all_devices_is_that_of_one(way, tmp_path):
    words, count = WAYS[way]
    script = tmp_path / "step.py"
    script.write_text(STEP)
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, *words, str(script)], capture_output=True, text=True, timeout=120, env=env
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (done.stdout + done.stderr).count("done") == count


def test_ranks_and_simulated_devices_agree():
    """On programs of all kinds; comparing with JAX's own devices: tests/peers/test_jax_axes.py."""
    script = str(Path(__file__).with_name("programs") / "sharded.py")
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    found = []
    for way in ("eight simulated", "four ranks"):
        words, _ = WAYS[way]
        done = subprocess.run(
            [sys.executable, *words, script], capture_output=True, text=True, timeout=120, env=env
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        found.append([line.removeprefix("[rank 0] ") for line in done.stdout.splitlines()])
    one, ranks = found
    assert len(one) == 26 and one == ranks
    assert "gradient of one for all: 28.0" in one  # of all shards, as in JAX


ALONE = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rows = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
x = jax.device_put(np.arange(16.0, dtype="f4").reshape(-1, 4), rows)
mean, gradient = jnp.mean(x), jax.grad(lambda w: jnp.mean((x @ w) ** 2))(jnp.ones(4))
if jax.process_index() == 0:
    assert float(mean) == 7.5 and gradient.tolist() == [520, 580, 640, 700], gradient
inner = jax.pmap(jax.pmap(lambda x: lax.psum(x, "j"), "j"), "i")  # the ranks are those of "i"
assert inner(np.ones((1, 1, 3), "f4")).tolist() == [[[1, 1, 1]]]
assert (x.sum(1) * 2).shape == (4,)
print("done")
"""


def test_one_rank_reads_sums_alone(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    words, _ = WAYS["two ranks"]
    done = subprocess.run(
        [sys.executable, *words, str(script)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_rank_that_dies_is_told_to_the_others(tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, signal, jax, numpy as np\n"
        "from jax import lax\n"
        "f = jax.pmap(lambda x: lax.psum(x, 'i'), 'i')\n"
        "f(np.ones((1, 2)))\n"
        "if jax.process_index() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "f(np.ones((1, 2)))\n"
    )
    words = ["-m", "disttrain_launcher", "--as-jax", "--nproc-per-node", "2", str(script)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + 9
    assert "PeerFailed" in done.stderr and "rank      : 1" in done.stderr
