"""JAX's names over disttrain: ``import disttrain.compat.jax as jax``.

    python -m disttrain.compat.jax train.py
    dtrun --as-jax --nproc-per-node 4 train.py

put it under JAX's own names. Names and conventions alone: what computes lies in the packages that
all faces stand on.
"""

from __future__ import annotations

from ..publish import Shim, publish, refuse_real
from .array import Array

VERSION = "0.10.2"

__all__ = ["Array", "install"]


def install() -> None:
    """Publish the stand-in under JAX's names. Calling it again changes nothing."""
    if not refuse_real("jax", "compat.jax"):
        publish(build(), {}, VERSION)


def build() -> dict[str, Shim]:
    """All modules of the stand-in, parents before children."""
    return {"jax": Shim("jax").give(Array=Array, __version__=VERSION)}
