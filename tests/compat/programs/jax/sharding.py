"""Arrays over a mesh of devices: jit of sharded arrays, shard_map."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

devices = np.array(jax.devices()).reshape(4, 2)
mesh = Mesh(devices, axis_names=("data", "model"))
x = jnp.arange(8 * 16, dtype=jnp.float32).reshape(8, 16)
w = jnp.ones((16, 4))
xs = jax.device_put(x, NamedSharding(mesh, P("data", "model")))
ws = jax.device_put(w, NamedSharding(mesh, P("model", None)))
print("spec", xs.sharding.spec, xs.addressable_shards[0].data.shape)


@jax.jit
def layer(x, w):
    y = jax.nn.relu(x @ w)
    return jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P("data", None)))


out = layer(xs, ws)
print("jit", bool(jnp.allclose(out, x @ w)), out.shape)


def block(x, w):
    return jax.lax.psum(x @ w, "model")


product = jax.shard_map(
    block, mesh=mesh, in_specs=(P("data", "model"), P("model", None)), out_specs=P("data", None)
)
print("shard_map", bool(jnp.allclose(product(x, w), x @ w)))
print("gradient", bool(jnp.allclose(jax.grad(lambda w: product(x, w).sum())(w), x.sum(0)[:, None])))
