"""A data-parallel step: pmap with lax.pmean over all devices."""

import functools

import jax
import jax.numpy as jnp

n = jax.local_device_count()
print("devices", jax.device_count(), n, len(jax.devices()))


def loss(params, x, y):
    h = jax.nn.relu(x @ params["w1"] + params["b1"])
    return jnp.mean((h @ params["w2"] + params["b2"] - y) ** 2)


@functools.partial(jax.pmap, axis_name="batch")
def step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    grads = jax.lax.pmean(grads, axis_name="batch")
    value = jax.lax.pmean(value, axis_name="batch")
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), value


k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
params = {
    "w1": jax.random.normal(k1, (4, 16)) * 0.5, "b1": jnp.zeros(16),
    "w2": jax.random.normal(k2, (16, 1)) * 0.5, "b2": jnp.zeros(1),
}  # fmt: skip
x = jax.random.normal(k3, (64, 4))
y = x.sum(1, keepdims=True)
alone = params
for _ in range(20):
    grads = jax.grad(loss)(alone, x, y)
    alone = jax.tree.map(lambda p, g: p - 0.05 * g, alone, grads)

many = jax.tree.map(lambda p: jnp.stack([p] * n), params)
start = jax.process_index() * 64 // jax.process_count()
mine = slice(start, start + 64 // jax.process_count())
xs, ys = x[mine].reshape(n, -1, 4), y[mine].reshape(n, -1, 1)
for _ in range(20):
    many, value = step(many, xs, ys)
close = jax.tree.map(lambda a, b: bool(jnp.allclose(a[0], b, atol=1e-4)), many, alone)
print("equal to one device", all(jax.tree.leaves(close)), value.shape)
