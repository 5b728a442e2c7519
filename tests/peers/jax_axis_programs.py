"""Programs over named axes, drawn by a seed: as text, that JAX and its face run alike.

python jax_axis_programs.py FIRST COUNT FILE      what the real JAX, with 8 devices, computes
"""

from __future__ import annotations

import pickle
import random
import sys
from typing import Any

HEAD = """
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

def given(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32") / 4
"""
SIZES = {"i": 4, "j": 2}
PLAIN = ("jnp.sin({x})", "{x} * {x}", "jnp.tanh({x}) + 0.5", "{x} * w.sum()", "{x} - w[:1, :1]")
STEPS = (
    "lax.psum({x}, {a}) + {x}", "lax.pmean({x}, {a}) * {x}", "{x} - lax.pmean({x}, {a})",
    "{x} * (lax.axis_index({a}) + 1)", "{x} / lax.axis_size({a})", "{x} * lax.psum(1, {a})",
    "lax.psum(w, {a}).sum() * {x}", "{x} + lax.pmean(jnp.sin({x}) @ w.T @ w, {a})",
    "lax.all_gather({x}, {a}).sum(0) * {x}",
)  # fmt: skip
SINGLE = (
    "lax.ppermute({x}, {a}, [(k, (k + 1) % {n}) for k in range({n})])",
    "lax.all_to_all({x}, {a}, 0, 1, tiled=True).reshape({x}.shape)",
    "lax.all_to_all({x}.reshape({n}, -1), {a}, 0, 0).reshape({x}.shape)",
    "lax.all_gather(lax.psum_scatter({x}, {a}, tiled=True), {a}, tiled=True) * {x}",
    "lax.all_gather({x}, {a}, axis=1, tiled=True)[:, :8] + {x}",
    "lax.psum_scatter(jnp.stack([{x}] * {n}), {a})",
    "lax.pswapaxes({x}.reshape({n}, -1), {a}, 0).reshape({x}.shape)",
)
WITHOUT_GRADIENT = ("lax.pmax({x}, {a}) - {x}", "{x} * lax.pmin({x}, {a})")


class Program:
    """One program: ``text`` defines ``result``."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.how = draw.choice(("vmap", "vmap2", "pmap", "map", "map", "map unchecked", "map2"))
        two = self.how in ("vmap2", "map2")
        self.names = ["i", "j"] if two else ["i"]
        self.derived = draw.choice(("none", "inside", "outside", "jvp", "both"))
        lines = [self._line(draw, f"x{k}", f"x{k + 1}") for k in range(draw.randint(2, 5))]
        body = "\n".join(f"    {line}" for line in lines)
        self.text = f"{HEAD}\ndef f(x0, w):\n{body}\n    return x{len(lines)}\n{self._around(draw)}"

    def _line(self, draw: random.Random, old: str, new: str) -> str:
        kinds = [PLAIN, STEPS, STEPS, SINGLE]
        if self.derived == "none":
            kinds.append(WITHOUT_GRADIENT)
        kind = draw.choice(kinds)
        if kind is SINGLE and self.how == "vmap2":  # (JAX's exchange in two vmaps is wrong)
            kind = PLAIN
        name = draw.choice(self.names)
        axis = repr(name)
        if kind is STEPS and len(self.names) > 1 and draw.random() < 0.4:
            axis = "('i', 'j')"
        return f"{new} = {draw.choice(kind).format(x=old, a=axis, n=SIZES[name])}"

    def _around(self, draw: random.Random) -> str:
        inner = {
            "inside": "g = jax.grad(lambda x, w: jnp.cos(f(x, w)).sum(), argnums=(0, 1))",
            "both": "g = jax.grad(lambda x, w: jnp.cos(f(x, w)).sum(), argnums=(0, 1))",
            "jvp": "g = lambda x, w: jax.jvp(f, (x, w), (jnp.cos(x), jnp.sin(w)))",
        }.get(self.derived, "g = lambda x, w: (f(x, w),)")
        whole = self._whole(draw)
        if self.derived in ("outside", "both"):
            weighed = "(jnp.sin(o) * (1 + jnp.arange(o.size).reshape(o.shape) / 64)).sum()"
            sums = f"sum({weighed} for o in h(x, w))"
            end = f"result = jax.grad(lambda x, w: {sums}, argnums=(0, 1))(X, W)"
        else:
            end = "result = h(X, W)"
        return f"{inner}\n{whole}\n{end}\n"

    def _whole(self, draw: random.Random) -> str:
        jit = draw.random() < 0.4
        w = "W = given(2, 3, 8)"
        if self.how == "vmap":
            text = f"X = given(1, 4, 4, 8)\n{w}\nh = jax.vmap(g, (0, None), axis_name='i')"
        elif self.how == "vmap2":
            text = (
                f"X = given(1, 4, 2, 4, 8)\n{w}\n"
                "h = jax.vmap(jax.vmap(g, (0, None), axis_name='j'), (0, None), axis_name='i')"
            )
        elif self.how == "pmap":
            text = f"X = given(1, 4, 4, 8)\n{w}\nh = jax.pmap(g, 'i', in_axes=(0, None))"
        else:
            text = self._mapped(draw, w)
        return f"{text}\nh = jax.jit(h)" if jit and self.how != "pmap" else text

    def _mapped(self, draw: random.Random, w: str) -> str:
        check = "" if self.how != "map unchecked" else ", check_vma=False"
        if self.how == "map2":
            spec = draw.choice(("('i', 'j')", "'i', 'j'", "'j', 'i'"))
            shape = {"('i', 'j')": "32, 8", "'i', 'j'": "16, 16", "'j', 'i'": "8, 32"}[spec]
            mesh = "Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ('i', 'j'))"
        else:
            spec, shape, mesh = "'i'", "16, 8", "Mesh(np.array(jax.devices()[:4]), ('i',))"
        count = {"none": 1, "outside": 1}.get(self.derived, 2)
        outs = [f"P({spec})"] * count
        if self.derived in ("inside", "both"):
            outs[1] = "P()" if not check else "P('i')"
        return (
            f"X = given(1, {shape})\n{w}\nmesh = {mesh}\n"
            f"h = jax.shard_map(g, mesh=mesh, in_specs=(P({spec}), P()), "
            f"out_specs=({', '.join(outs)},){check})"
        )


def run(text: str) -> Any:
    """What a program gives: arrays, or its error's class."""
    import numpy as np

    space: dict = {}
    try:
        exec(compile(text, "program", "exec"), space)
        return [np.asarray(x) for x in space["result"]]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    found = [run(Program(seed).text) for seed in range(first, first + count)]
    with open(sys.argv[3], "wb") as file:
        pickle.dump(found, file)
