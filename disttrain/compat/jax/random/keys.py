"""Keys: made of seeds, split, and taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import keyed
from ..array import unwrap, wrap
from ..key_types import IMPL, KeyType, is_key, key_type
from ..types import canonical
from .arguments import (
    as_given,
    keys_of,
    of_words,
    shape_of,
)


def _known(impl: Any) -> None:
    if impl is None or isinstance(impl, KeyType) or impl == IMPL:
        return
    if impl in ("rbg", "unsafe_rbg"):
        raise NotImplementedError(f"the PRNG implementation {impl!r} is not here; {IMPL!r} is")
    if isinstance(impl, str):
        raise ValueError(
            f'unrecognized PRNG implementation "{impl}". Did you mean one of: "{IMPL}"?'
        )
    raise TypeError(f"unrecognized type {type(impl)} for specifying PRNG implementation.")


def _seeded(where: str, seed: Any, impl: Any) -> Any:
    _known(impl)
    if is_key(seed):
        raise TypeError(f"{where} accepts a scalar seed, but was given a PRNG key.")
    if np.ndim(seed):
        raise TypeError(
            f"{where} accepts a scalar seed, but was given an array of shape {np.shape(seed)} != "
            "(). Use jax.vmap for batching"
        )
    if isinstance(seed, int) and not isinstance(seed, bool):
        seed = np.asarray(np.int64(seed)).astype(canonical(int))
    value = unwrap(seed)
    if value.meta()[1].kind not in "iu":
        raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")
    return keyed.seed(value)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A typed key of an integer."""
    return wrap(_seeded("key", seed, _either(impl, dtype, "key")))


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:  # noqa: N802
    """A key of an integer, as two words (uint32 [2])."""
    return wrap(keyed.data(_seeded("PRNGKey", seed, impl)))


def _either(impl: Any, dtype: Any, where: str) -> Any:
    if impl is not None and dtype is not None:
        raise ValueError(f"Cannot specify both `impl` and `dtype` arguments to jax.random.{where}")
    return impl if dtype is None else dtype


def key_dtype(impl: Any = None) -> KeyType:
    """The type of keys."""
    _known(impl)
    return key_type


def key_data(keys: Any) -> Any:
    """The words of keys, uint32 [..., 2]."""
    return wrap(keyed.data(keys_of("key_data", keys, True)[0]))


def key_impl(keys: Any) -> str:
    """How numbers are made of these keys."""
    keys_of("key_impl", keys, True)
    return IMPL


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Typed keys of words."""
    _known(_either(impl, dtype, "wrap_key_data"))
    return wrap(of_words(key_bits_array))


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """New keys, in front."""
    found, raw = keys_of("split", key)
    shape = num if isinstance(num, (tuple, list)) else (num,)
    return as_given(keyed.split(found, shape_of(shape)), raw)


def fold_in(key: Any, data: Any) -> Any:
    """The key of a key and a number."""
    found, raw = keys_of("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array ofshape {np.shape(data)} != (). Use "
            "jax.vmap for batching."
        )
    number = data if isinstance(data, int) else unwrap(data)
    if isinstance(data, int) and not 0 <= data < 1 << 32:
        raise OverflowError(f"Python integer {data} out of bounds for uint32")
    return as_given(keyed.fold_in(found, number), raw)


def clone(key: Any) -> Any:
    """The key once more."""
    return key
