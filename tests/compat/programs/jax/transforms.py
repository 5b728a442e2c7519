"""Transforms on a small network whose parameters are a dict."""

import jax
import jax.numpy as jnp
from jax import grad, jit, random, value_and_grad, vmap


def init(key, sizes):
    params = {}
    for i, (n_in, n_out) in enumerate(zip(sizes[:-1], sizes[1:])):
        key, sub = random.split(key)
        params[f"w{i}"] = random.normal(sub, (n_in, n_out)) * jnp.sqrt(2.0 / n_in)
        params[f"b{i}"] = jnp.zeros(n_out)
    return params


def predict(params, x):
    h = jnp.tanh(x @ params["w0"] + params["b0"])
    return (h @ params["w1"] + params["b1"]).squeeze(-1)


def loss(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


@jit
def update(params, x, y):
    value, grads = value_and_grad(loss)(params, x, y)
    return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads), value


key = random.PRNGKey(0)
params = init(key, [1, 32, 1])
x = jnp.linspace(-1, 1, 64).reshape(-1, 1)
y = jnp.sin(3 * x).squeeze(-1)
first = float(loss(params, x, y))
for step in range(300):
    params, value = update(params, x, y)
print("learned", float(value) < 0.05 * first, jax.tree.structure(params))

# gradients for each example: jit(vmap(grad))
per_example = jit(vmap(grad(loss), in_axes=(None, 0, 0)))
rows = per_example(params, x[:, None], y[:, None])
whole = grad(loss)(params, x, y)
print("per example", jax.tree.map(lambda a: a.shape, rows)["w0"])
print("mean agrees", all(
    jax.tree.leaves(jax.tree.map(lambda r, g: jnp.allclose(r.mean(0), g, atol=1e-5), rows, whole))
))


# second derivatives, forward over reverse; Python numbers are arguments
def f(x):
    return x**3 + 2 * x


print("derivatives", grad(f)(2.0), grad(grad(f))(2.0), jax.hessian(f)(2.0))
print("jvp", jax.jvp(jnp.sin, (0.0,), (1.0,)))
out, pull = jax.vjp(lambda a, b: a * b, 3.0, 4.0)
print("vjp", out, pull(1.0))
print(jax.make_jaxpr(lambda x: jnp.sin(x) * 2.0 + 1.0)(1.0))


@jax.custom_vjp
def clip_gradient(x):
    return x


clip_gradient.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))
print("custom", grad(lambda x: 10.0 * clip_gradient(x))(1.0))


def body(carry, x):
    carry = carry + x
    return carry, carry


total, sums = jax.lax.scan(body, 0, jnp.arange(5))
print("scan", total, sums)
print("while", jax.lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * 2), (0, 1)))
print("cond", jax.lax.cond(True, lambda x: x + 1, lambda x: x - 1, 5))
print("fori", jax.lax.fori_loop(0, 5, lambda i, acc: acc + i, 0))
a = jnp.arange(5)
print("at", a.at[1].set(10), a.at[2:].add(1), a)
try:
    a[0] = 1
except TypeError as error:
    print("immutable", "JAX arrays are immutable" in str(error))
try:
    jit(lambda x: 1 if x > 0 else 2)(1.0)
except jax.errors.TracerBoolConversionError as error:
    print("traced", type(error).__name__)
