"""Programs over four devices, whose values do not depend on whether these are ranks or simulated:
one line each. Run by test_spmd.py."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

D = jax.devices()[:4]
m4 = Mesh(np.array(D), ("i",))
mm = Mesh(np.array(D).reshape(2, 2), ("i", "j"))
X = np.arange(8.0, dtype="f4")
I = P("i")
rows = NamedSharding(m4, I)


def whole(a):
    if not isinstance(a, jax.Array):
        return a
    here = a.is_fully_addressable
    found = np.asarray(a) if here else multihost_utils.process_allgather(a)
    return (np.round(found, 3) + 0.0).tolist()


def tell(name, f):
    try:
        found = jax.tree.map(whole, f())
    except ValueError as error:
        found = str(error)[:120]
    if jax.process_index() == 0:
        print(f"{name}: {found!r}")


def over(f, i=I, o=I, m=m4, **more):
    return jax.shard_map(f, mesh=m, in_specs=i, out_specs=o, **more)


def ring(x):
    def body(c, _):
        acc, y = c
        y = lax.ppermute(y, "i", [(k, (k + 1) % 4) for k in range(4)])
        return (acc + y, y), acc.sum()

    return lax.scan(body, (x, x), None, length=3)[0][0]


def descent(w, x):
    def step(w, _):
        return w - 0.01 * jax.grad(lambda w: (w * x**2).sum())(w), w

    return lax.scan(step, w, None, length=3)[0]


def laid(x):
    return lax.with_sharding_constraint(x * 2, rows)


W = (P(), P("i"))
x = jax.device_put(X, rows)
three = np.float32(3)
PROGRAMS = {
    "ring": lambda: over(ring)(X),
    "ring under jit": lambda: jax.jit(over(ring))(X),
    "ring backward": lambda: jax.grad(
        lambda x: over(lambda x: lax.psum(ring(x) ** 2, "i").sum(), o=P())(x)
    )(X),
    "gradient inside": lambda: over(jax.grad(lambda x: lax.psum(jnp.sin(x), "i").sum()))(X),
    "gradient of one for all": lambda: over(jax.grad(lambda w, x: (w * x).sum()), i=W, o=P())(
        three, X
    ),
    "descent": lambda: over(descent, i=W, o=P())(three, X),
    "jit inside": lambda: over(
        jax.jit(lambda w, x: jax.grad(lambda w: (w * x).sum())(w)), i=W, o=P()
    )(three, X),
    "two axes": lambda: over(lambda x: lax.psum(x, ("i", "j")), i=P(("i", "j")), o=P(), m=mm)(X),
    "one of two": lambda: over(
        lambda x: lax.all_gather(x, "j", tiled=True), i=P(("i", "j")), o=P(("i", "j")), m=mm
    )(X),
    "index": lambda: over(lambda x: x + lax.axis_index("i"))(X),
    "cond": lambda: over(lambda x: lax.cond(x.sum() > 5, lambda x: x * 2, lambda x: x - 1, x))(X),
    "while": lambda: over(lambda x: lax.while_loop(lambda c: c.sum() < 10, lambda c: c * 2 + 1, x))(
        X
    ),
    "differs": lambda: over(lambda x: x, o=P())(X),
    "uneven": lambda: over(lambda x: x)(X[:3]),
    "unchecked": lambda: over(lambda x: x * 0, o=P(), check_vma=False)(X),
    "remat": lambda: over(jax.grad(jax.checkpoint(lambda x: lax.psum(jnp.sin(x), "i").sum())))(X),
    "vmap": lambda: jax.vmap(over(lambda x: x - lax.pmean(x, "i")))(np.stack([X, X * 2])),
    "jvp": lambda: jax.jvp(over(lambda x: lax.psum(x * x, "i"), o=P()), (X,), (X,)),
    "hessian": lambda: jax.hessian(lambda x: over(lambda x: lax.psum((x**3).sum(), "i"), o=P())(x))(
        X[:4]
    ),
    "product": lambda: x @ x,
    "shardings of jit": lambda: jax.jit(lambda x: (x * 2).reshape(2, 4).sum(0), out_shardings=rows)(
        x
    ),
    "mixed": lambda: x + X,
    "indexed": lambda: x[2:5],
    "constraint": lambda: jax.jit(laid)(X),
    "constraint backward": lambda: jax.jit(jax.grad(lambda x: (laid(x) ** 2).sum()))(X),
    "a number": lambda: float(x.sum()),
}
for name, program in PROGRAMS.items():
    tell(name, program)
