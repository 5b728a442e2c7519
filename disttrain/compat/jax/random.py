"""``jax.random``: ``dt.keyed`` with JAX's keys, its rows read for JAX's arrays."""

from __future__ import annotations

from typing import Any

from ...keyed import data
from ...keyed.program import Keys
from ...keyed.rows import Samplers
from .array import Array, wrap
from .key_types import key_type
from .numpy.lifting import LIFTING


def _options(name: str, given: dict) -> None:
    sharding = given.pop("out_sharding", None)
    if sharding is not None and not getattr(sharding.mesh, "empty", False):
        raise NotImplementedError(f"jax.random.{name}: out_sharding is not supported")


class _Keys(Keys):
    def __reduce__(self) -> str:  # its functions are pickled by name
        return "KEYS"


KEYS = _Keys(LIFTING, "jax.random", "JAX", key_type)
key_of = KEYS.key_of


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:  # noqa: N802
    """A key of an integer, as two words (uint32 [2])."""
    return wrap(data(KEYS.seeded("PRNGKey", seed, impl)))


NAMES: dict[str, Any] = {
    **Samplers(LIFTING, lambda *of: key_of(*of)[0], _options).table(), **KEYS.names(),
    "PRNGKey": PRNGKey,
}  # fmt: skip
globals().update(NAMES)
