"""What the arguments of ``jax.random``'s functions mean, and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from .... import keyed
from ..array import Array, kind_of, unwrap, wrap
from ..key_types import IMPL, is_key
from ..types import canonical, result_kind

Shape = Sequence[int]
_BATCHED = (
    "accepts a single key, but was given a key array of shape {} != (). Use jax.vmap for batching."
)


def keys_of(where: str, key: Any, batched: bool = False) -> tuple[Any, bool]:
    """The Tensor of typed keys, and whether they came as raw words."""
    raw = not is_key(key)
    if raw and not isinstance(key, (Array, np.ndarray, np.generic, int, float)):
        raise TypeError(f"unexpected PRNG key type {type(key)}")
    found = of_words(key) if raw else key._value
    if not batched and found.ndim:
        raise ValueError(f"{where} {_BATCHED.format(tuple(key.shape))}")
    return found, raw


def of_words(words: Any) -> Any:
    """Keys of words, which are checked."""
    said = "JAX encountered invalid PRNG key data: expected key_data"
    if not all(hasattr(words, name) for name in ("ndim", "shape", "dtype")):
        raise TypeError(f"{said} to have ndim, shape, and dtype attributes. Got {words}")
    if words.ndim < 1:
        raise TypeError(f"{said}.ndim >= 1; got ndim={words.ndim}")
    if tuple(words.shape[-1:]) != (2,):
        raise TypeError(
            f"{said}.shape to end with (2,); got shape={tuple(words.shape)} for impl={IMPL}"
        )
    if words.dtype != np.uint32:
        raise TypeError(f"{said}.dtype = uint32; got dtype={words.dtype}")
    return keyed.of_data(unwrap(words))


def key_of(where: str, key: Any) -> Any:
    """The Tensor of one key."""
    return keys_of(where, key)[0]


def as_given(keys: Any, raw: bool) -> Any:
    """Keys, as words where they came so."""
    return wrap(keyed.data(keys) if raw else keys)


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape of JAX's: an integer, or some."""
    try:
        return (index(shape),) if np.ndim(shape) == 0 else tuple(index(n) for n in shape)
    except TypeError:
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {shape!r}."
        ) from None


def float_kind(where: str, dtype: Any, kinds: str = "fV", words: str = "a float") -> np.dtype:
    """The type of the result, among ``kinds``."""
    kind = canonical(dtype if dtype is not None else int if kinds == "iu" else float)
    if kind.kind not in kinds:
        raise ValueError(f"dtype argument to `{where}` must be {words} dtype, got {kind}")
    return kind


def common_shape(where: str, shape: Any, *params: Any) -> tuple[int, ...]:
    """The shape of the result: that of the parameters, unless given."""
    shapes = [tuple(np.shape(p)) for p in params]
    if shape is None:
        return np.broadcast_shapes(*shapes)
    shape = shape_of(shape)
    try:
        both = np.broadcast_shapes(shape, *shapes)
    except ValueError:
        raise ValueError(
            f"Incompatible shapes for broadcasting: shapes={[shape, *shapes]}"
        ) from None
    if both != shape:
        raise ValueError(
            f"{where} parameter shapes must be broadcast-compatible with shape argument, and the "
            "result of broadcasting the shapes must equal the shape argument, but got result "
            f"{both} for shape argument {shape}."
        )
    return shape


def unsharded(where: str, sharding: Any) -> None:
    """Say what is not here."""
    if sharding is not None:
        raise NotImplementedError(
            f"jax.random.{where}: out_sharding is not supported; use "
            "jax.lax.with_sharding_constraint on the result"
        )


def plain(
    where: str, draw: Callable, key: Any, shape: Any, dtype: Any, sharding: Any, **how: Any
) -> Any:
    """What ``draw`` draws without parameters."""
    unsharded(where, sharding)
    found, kind = key_of(where, key), float_kind(where, dtype)
    return wrap(draw(found, shape_of(shape), kind, **how))


def drawn(
    where: str, draw: Callable, key: Any, params: tuple, shape: Any, dtype: Any,
    sharding: Any = None, safe: bool = True, **how: Any,
) -> Any:  # fmt: skip
    """What ``draw`` draws with ``params``, in whose type they go without loss (``safe``)."""
    unsharded(where, sharding)
    found, kind = key_of(where, key), float_kind(where, dtype)
    for p in params if safe else ():
        if result_kind(kind_of(p), (kind, False))[0] != kind:
            raise TypeError(
                f"In arguments to {where}, cannot safely cast argument of type "
                f"{kind_of(p)[0]} to {kind}"
            )
    shape = common_shape(where, shape, *params)
    return wrap(draw(found, *(unwrap(p, kind) for p in params), shape, kind, **how))
