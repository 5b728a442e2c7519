"""Several faces in one process: each under its own names, values handed from one to the other."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import disttrain
assert not [m for m in sys.modules if m.startswith("disttrain.compat")]
import disttrain.compat.jax, disttrain.compat.tensorflow, disttrain.compat.torch
for face in ("jax", "tensorflow", "torch"):
    getattr(disttrain.compat, face).install()
import jax, jax.numpy as jnp, numpy as np, tensorflow as tf, torch
a = torch.arange(4.0, requires_grad=True)
(a**2).sum().backward()
assert a.grad.tolist() == jax.grad(lambda x: (x**2).sum())(jnp.arange(4.0)).tolist()
x = tf.Variable([1.0, 2.0])
with tf.GradientTape() as tape:
    y = tf.reduce_sum(x * x)
assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0]
b = a.detach()
taken, copied = jnp.from_dlpack(b), jnp.array(b)
assert taken.dtype == copied.dtype == np.float32 and copied.tolist() == b.tolist()
b[0] = 9.0
assert copied[0] == 0.0
assert torch.from_dlpack(jnp.ones(3)).tolist() == torch.as_tensor(np.asarray(jnp.ones(3))).tolist()
assert tf.constant(np.asarray(jnp.ones(2))).numpy().tolist() == [1.0, 1.0]
assert jnp.asarray(tf.constant([1.0, 2.0]).numpy()).dtype == jnp.float32
"""


def test_faces_live_in_one_process():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
