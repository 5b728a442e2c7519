"""The element type of JAX's typed keys, ``key<fry>``, and what of ``jax.dtypes`` is about it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.types import dtypes

IMPL = "threefry2x32"
KEY = dtypes.key.np


class extended(np.generic):  # noqa: N801
    """What types that numpy does not know are of."""


class prng_key(extended):  # noqa: N801
    """What the types of keys are of."""


class KeyType:
    """The type of a key. There is one: threefry's."""

    name, itemsize, kind, type, num = "key<fry>", 8, "k", prng_key, 64
    char, alignment, metadata, fields = "k", 4, None, None
    _impl, dtype = IMPL, KEY  # by which numpy takes it for the type of the words

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyType)

    def __hash__(self) -> int:
        return hash(KeyType)


key_type = KeyType()


def shown(kind: np.dtype) -> Any:
    """A numpy type as JAX's users see it."""
    return key_type if kind == KEY else kind
