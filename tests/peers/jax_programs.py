"""Drawn compositions of JAX's transforms, as source text that both JAX and its face run.

Each is a function ``f(p, x)`` of a tree and a vector, made of a small expression by wrapping it
some times: each wrapper takes such a function and gives one.
"""

from __future__ import annotations

import random

PRELUDE = """
import collections, functools
Pair = collections.namedtuple("Pair", "left right")

@jax.custom_vjp
def clipped(x):
    return jnp.tanh(x) * 2
clipped.defvjp(lambda x: (clipped(x), (x,)), lambda res, g: (g * jnp.cos(res[0]),))

@jax.custom_jvp
def soft(x):
    return jnp.log1p(jnp.exp(x))
@soft.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return soft(x), t * jnp.sin(x)

@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scaled(k, x):
    return x * k
scaled.defvjp(lambda k, x: (scaled(k, x), {"x": x}), lambda k, res, g: (g * k + res["x"] * 0.1,))

def total(t):
    leaves = [l for l in jax.tree.leaves(t) if getattr(l, "dtype", None) != jax.dtypes.float0]
    return sum(jnp.sum(l) for l in leaves)
"""

LEAVES = (
    "jnp.sin(x)", "x * p['s']", "p['w'] @ x", "x + p['b']", "jnp.tanh(x) * p['t'].left",
    "jnp.where(x > 0, x, p['s'] * x)", "jnp.exp(-x * x)", "clipped(x)", "soft(x)", "scaled(3, x)",
    "x[::-1]", "jnp.maximum(x, p['b'])", "x / (1 + jnp.abs(x))", "jnp.cumsum(x)", "jnp.sort(x)",
    "jnp.dot(x, x) * p['b']", "x.at[0].set(p['s'])", "jnp.concatenate([x[1:], x[:1]])",
    "jax.nn.softmax(x)", "x ** 2", "jnp.sqrt(x * x + 1)", "x.astype(jnp.float32)", "x - x.mean()",
    "lax.stop_gradient(x) * x", "jnp.stack([x, p['b']]).sum(0)", "jnp.max(x) * x",
)  # fmt: skip
JOINS = ("({a}) + ({b})", "({a}) * ({b})", "({a}) - 0.5 * ({b})", "jnp.minimum({a}, {b})")

WRAPPERS = {
    "jit": "jax.jit({f})",
    "checkpoint": "jax.checkpoint({f})",
    "grad": "lambda p, x: jax.grad(lambda y: {f}(p, y).sum())(x)",
    "grad_p": "lambda p, x: x * total(jax.grad(lambda q: {f}(q, x).sum())(p))",
    "both": "lambda p, x: (lambda v, g: v + g[1] + total(g[0]))(*jax.value_and_grad("
            "lambda q, y: ({f})(q, y).sum(), argnums=(0, 1))(p, x))",
    "aux": "lambda p, x: (lambda g, a: g + a)(*jax.grad("
           "lambda y: (({f})(p, y).sum(), y * 2), has_aux=True)(x))",
    "jvp": "lambda p, x: jax.jvp(lambda y: {f}(p, y), (x,), (jnp.cos(x),))[1]",
    "jvp_p": "lambda p, x: jax.jvp(lambda q: {f}(q, x), (p,), (p,))[1]",
    "vjp": "lambda p, x: jax.vjp(lambda y: {f}(p, y), x)[1](jnp.ones_like(x) * x)[0]",
    "linearize": "lambda p, x: jax.linearize(lambda y: {f}(p, y), x)[1](x + 1)",
    "vmap": "lambda p, x: jax.vmap({f}, in_axes=(None, 0))(p, jnp.stack([x, x * 2])).sum(0)",
    "vmap_out": "lambda p, x: jax.vmap({f}, in_axes=(None, 1), out_axes=1)("
                "p, jnp.stack([x, x * 2, x], 1)) @ jnp.array([1., 2., 3.], x.dtype)",
    "vmap_p": "lambda p, x: jax.vmap({f}, in_axes=({{'w': None, 'b': 0, 's': None, 't': None}}, "
              "None))({{**p, 'b': jnp.stack([p['b'], p['b'] * 2])}}, x).sum(0)",
    "vmap_grad": "lambda p, x: jax.vmap(jax.grad(lambda y: {f}(p, y).sum()))("
                 "jnp.stack([x, -x])).sum(0)",
    "per_example": "lambda p, x: x * total(jax.vmap(jax.grad(lambda q, y: {f}(q, y).sum()), "
                   "in_axes=(None, 0))(p, jnp.stack([x, -x])))",
    "jacfwd": "lambda p, x: jax.jacfwd(lambda y: {f}(p, y))(x) @ x",
    "jacrev": "lambda p, x: jax.jacrev(lambda y: {f}(p, y))(x).T @ x",
    "hessian": "lambda p, x: jax.hessian(lambda y: {f}(p, y).sum())(x) @ x",
    "scan": "lambda p, x: lax.scan(lambda c, a: ({f}(p, c) * a, c.sum()), x, "
            "jnp.array([.5, .25], x.dtype))[0]",
    "fori": "lambda p, x: lax.fori_loop(0, 2, lambda i, c: {f}(p, c) * 0.5 + i * x, x)",
    "cond": "lambda p, x: lax.cond(x.sum() > 0, lambda y: {f}(p, y) * 1.0, lambda y: y * 2, x)",
    "custom_vjp": "own_vjp({f})",
    "custom_jvp": "own_jvp({f})",
    "partial": "jax.tree_util.Partial(lambda k, p, x: {f}(p, x) * k, 2.0)",
}  # fmt: skip

RULES = """
def own_vjp(f):
    @jax.custom_vjp
    def g(p, x):
        return f(p, x)
    g.defvjp(
        lambda p, x: (g(p, x), (p, x)),
        lambda res, c: jax.tree.map(lambda v: v * 0.5, jax.vjp(f, *res)[1](c)),
    )
    return g

def own_jvp(f):
    @jax.custom_jvp
    def g(p, x):
        return f(p, x)
    @g.defjvp
    def rule(primals, tangents):
        out, moved = jax.jvp(f, primals, tangents)
        return out, moved * 0.5
    return g
"""

# Programs that are wrong: the class of the error is compared.
MISTAKES = (
    "jax.grad({f}, argnums=1)(p, x)", "jax.grad({f}, argnums=5)(p, x)", "jax.grad({f})(p, 'x')",
    "jax.vmap({f}, in_axes=(None, 3))(p, x)", "jax.vmap({f}, in_axes=(0, 0))(p, x)",
    "jax.vmap({f}, in_axes='a')(p, x)", "jax.vmap({f}, in_axes=(None,))(p, x)",
    "jax.jvp({f}, (p, x), (p,))", "jax.jvp({f}, (p, x), (p, 1))", "jax.vjp({f}, p, x)[1](1.0)",
    "jax.vjp({f}, p, x)[1](x, x)", "jax.jit(lambda p, x: float(x[0]))(p, x)",
    "jax.jit(lambda p, x: x if x.sum() > 0 else -x)(p, x)", "jax.jit({f})(p, 'a')",
    "jax.jit(lambda p, x: 'a')(p, x)", "jax.jit({f}, static_argnums=1)(p, x)",
    "jax.linearize({f}, p, x)[1](x)", "jax.jacfwd({f}, argnums=1)(p, jnp.arange(3))",
    "jax.vmap(lambda x: int(x))(x)", "jax.grad(lambda x: x.sum() > 0)(x)",
    "jax.jit(lambda x: [1, 2, 3][x])(1)", "jax.vmap({f}, in_axes=None)(p, x)",
    "jax.tree.map(lambda a, b: a, p, x)", "jax.grad({f}, has_aux=True)(p, x)",
    "jax.eval_shape(lambda x: 'a', x)", "jax.custom_vjp({f})(p, x)", "jax.custom_jvp({f})(p, x)",
    "jax.vmap({f}, out_axes=(0, 0), in_axes=(None, 0))(p, jnp.stack([x, x]))",
    "jax.jit({f}).lower(p, x).compile()(p, x[:2])", "jax.checkpoint(3)",
)  # fmt: skip


def expression(rng: random.Random) -> str:
    """A vector of ``p`` and ``x``."""
    text = rng.choice(LEAVES)
    for _ in range(rng.randrange(3)):
        text = rng.choice(JOINS).format(a=text, b=rng.choice(LEAVES))
    return text


def program(seed: int) -> str:
    """The text of a program that sets ``result``."""
    rng = random.Random(seed)
    lines = [f"f0 = lambda p, x: {expression(rng)}"]
    depth = rng.choice((1, 1, 2, 2, 2, 3, 3))
    for i in range(depth):
        lines.append(f"f{i + 1} = {WRAPPERS[rng.choice(list(WRAPPERS))].format(f=f'f{i}')}")
    last = f"f{depth}"
    if rng.random() < 0.1:
        lines.append(f"result = {rng.choice(MISTAKES).format(f=last)}")
    elif rng.random() < 0.3:
        lines.append(f"result = jax.eval_shape({last}, p, x)")
    else:
        lines.append(f"result = {last}(p, x)")
    scalar = rng.choice(("0.7", "jnp.asarray(0.7)", "jnp.float32(0.7)", "np.float32(0.7)"))
    return "\n".join([
        PRELUDE, RULES,
        f"p = dict(w=jnp.array({_matrix(rng)}), b=jnp.array({_vector(rng)}), s={scalar}, "
        f"t=Pair(jnp.array({_vector(rng)}), None))",
        f"x = jnp.array({_vector(rng)})",
        *lines,
    ])  # fmt: skip


def _vector(rng: random.Random) -> list[float]:
    return [round(rng.uniform(-1.5, 1.5), 3) for _ in range(3)]


def _matrix(rng: random.Random) -> list[list[float]]:
    return [_vector(rng) for _ in range(3)]
