"""How primitives run on device arrays, where their own forwards would not serve.

A file per group of ``ops/primitives``. Each sets ``Primitive.on_device`` to a function
``(platform, *raw arrays, **params)``, by the decorator ``on_device("name")``. Importing this
package fills the table; ``backends.device.platform`` does so before it makes the first platform, so
programs without a device never load it. What stands nowhere here runs by its own forward, whose
calls of numpy's functions the raw arrays answer.
"""

from . import (
    attention,
    conv,
    elementwise,
    factors,
    gathering,
    linalg,
    loss,
    pool,
    quantization,
    random,
    reduce,
    rows,
    sort,
    special,
    views,
    write,
)

__all__ = [
    "attention",
    "conv",
    "elementwise",
    "factors",
    "gathering",
    "linalg",
    "loss",
    "pool",
    "quantization",
    "random",
    "reduce",
    "rows",
    "sort",
    "special",
    "views",
    "write",
]
