"""``jax.lax``: names and conventions over ``func``, ``arrays`` and ``ops``."""

from __future__ import annotations

from . import collectives, control, elementwise, products, reductions, shapes

NAMES = {
    **elementwise.NAMES,
    **shapes.NAMES,
    **products.NAMES,
    **reductions.NAMES,
    **collectives.NAMES,
    **{
        name: getattr(control, name)
        for name in (
            "associative_scan", "cond", "fori_loop", "map", "scan", "switch", "while_loop",
        )
    },
}  # fmt: skip
globals().update(NAMES)
