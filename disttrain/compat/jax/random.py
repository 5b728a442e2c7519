"""``jax.random``: ``dt.keyed`` with JAX's keys, its rows read for JAX's arrays."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from ... import keyed
from ...arrays.axes import shape_of
from ...core.types import dtypes
from ...keyed.rows import Samplers
from .array import Array, kind_of, unwrap, wrap
from .key_types import IMPL, KeyType, is_key, key_type
from .numpy.lifting import LIFTING
from .numpy.making import asarray
from .types import canonical, inexact


# --- keys -----------------------------------------------------------------------------------------
def key_of(where: str, key: Any, batched: bool = False) -> tuple[Any, bool]:
    """The Tensor of typed keys, and whether they came as words."""
    raw = not is_key(key)
    if raw and not isinstance(key, (Array, np.ndarray, np.generic, int, float)):
        raise TypeError(f"unexpected PRNG key type {type(key)}")
    found = _of_words(key) if raw else key._value
    if not batched and found.ndim:
        raise ValueError(
            f"{where} accepts a single key, but was given a key array of shape "
            f"{tuple(key.shape)} != (). Use jax.vmap for batching."
        )
    return found, raw


def _of_words(words: Any) -> Any:
    wrong = (
        "have ndim, shape, and dtype attributes. Got {}" if not hasattr(words, "ndim")
        else ".ndim >= 1; got ndim={0.ndim}" if words.ndim < 1
        else ".shape to end with (2,); got shape={0.shape}" if words.shape[-1] != 2
        else ".dtype = uint32; got dtype={0.dtype}" if words.dtype != np.uint32 else ""
    )  # fmt: skip
    if wrong:
        to = "" if wrong[0] == "." else " to "
        said = f"JAX encountered invalid PRNG key data: expected key_data{to}{wrong}"
        raise TypeError(said.format(words))
    return keyed.of_data(unwrap(words))


def _seeded(where: str, seed: Any, *impls: Any) -> Any:
    if all(i is not None for i in impls[:2]) and len(impls) > 1:
        raise ValueError(f"Cannot specify both `impl` and `dtype` arguments to jax.random.{where}")
    for impl in impls:
        if impl in ("rbg", "unsafe_rbg"):
            raise NotImplementedError(f"the PRNG implementation {impl!r} is not here; {IMPL!r} is")
        if impl is not None and impl != IMPL and not isinstance(impl, KeyType):
            error = ValueError if isinstance(impl, str) else TypeError
            said = f'unrecognized PRNG implementation "{impl}". Did you mean one of: "{IMPL}"?'
            raise error(said)
    if where == "wrap_key_data":
        return _of_words(seed)
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


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """A typed key of an integer."""
    return wrap(_seeded("key", seed, impl, dtype))


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:  # noqa: N802
    """A key of an integer, as two words (uint32 [2])."""
    return wrap(keyed.data(_seeded("PRNGKey", seed, impl)))


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """Typed keys of words."""
    return wrap(_seeded("wrap_key_data", key_bits_array, impl, dtype))


def key_data(keys: Any) -> Array:
    """The words of keys, uint32 [..., 2]."""
    return wrap(keyed.data(key_of("key_data", keys, True)[0]))


def key_dtype(impl: Any = None) -> KeyType:
    """The type of keys."""
    return key_type


def key_impl(keys: Any) -> str:
    """How numbers are made of these keys."""
    return IMPL if key_of("key_impl", keys, True) else ""


def clone(key: Any) -> Any:
    """The key once more."""
    return key


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """New keys."""
    found, raw = key_of("split", key)
    new = keyed.split(found, shape_of(num))
    return wrap(keyed.data(new) if raw else new)


def fold_in(key: Any, data: Any) -> Array:
    """The key of a key and a number."""
    found, raw = key_of("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array ofshape {np.shape(data)} != (). Use "
            "jax.vmap for batching."
        )
    if isinstance(data, int) and not 0 <= data < 1 << 32:
        raise OverflowError(f"Python integer {data} out of bounds for uint32")
    new = keyed.fold_in(found, data if isinstance(data, int) else unwrap(data))
    return wrap(keyed.data(new) if raw else new)


# --- choices and orders ---------------------------------------------------------------------------
def _items(x: Any) -> Any:
    """An array, or how many there are."""
    if np.ndim(x):
        return unwrap(x)
    if kind_of(x)[0].kind not in "iu":
        raise TypeError("x must be an integer or at least 1-dimensional")
    return index(x)


def _whole(out: Any, items: Any) -> Array:
    return wrap(out.to(dtypes.of(canonical(int))) if isinstance(items, int) else out)


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Array:
    """A range, or an array along ``axis``, shuffled."""
    found, items = key_of("permutation", key)[0], _items(x)
    return _whole(keyed.permutation(found, items, axis, independent), items)


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
    mode: str | None = None,
) -> Array:  # fmt: skip
    """A sample of an array along ``axis``, or of a range."""
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"shape argument of jax.random.choice must be a sequence, got {shape}")
    found, items = key_of("choice", key)[0], _items(a)
    chances = None if p is None else LIFTING.one("choice", asarray(p), inexact)
    out = keyed.choice(found, items, shape_of(shape), replace, chances, axis, mode)
    return _whole(out, items)


def _options(name: str, given: dict) -> None:
    sharding = given.pop("out_sharding", None)
    if sharding is not None and not getattr(sharding.mesh, "empty", False):
        raise NotImplementedError(f"jax.random.{name}: out_sharding is not supported")


NAMES: dict[str, Any] = Samplers(LIFTING, lambda *of: key_of(*of)[0], _options).table()
for _fn in (key, PRNGKey, wrap_key_data, key_data, key_dtype, key_impl, clone, split, fold_in,
            permutation, choice):  # fmt: skip
    NAMES[_fn.__name__] = _fn
globals().update(NAMES)
