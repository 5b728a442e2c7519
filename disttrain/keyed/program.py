"""Keys, choices and orders for a program whose arrays a ``Lifting`` knows: keys of the type
``dt.key``, or as words (uint32 [..., 2]), with what is said of things that are no keys."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from ..arrays.axes import shape_of
from ..arrays.lifting import Lifting, cast
from ..core.tensor import Tensor
from ..core.types import dtypes, lattice
from . import choices, keys

IMPL = "threefry2x32"
_METHODS = """key wrap_key_data key_data key_dtype key_impl clone split fold_in permutation
choice"""


class Keys:
    """``module``: where the program has these functions; ``name``: what it is called;
    ``key_type``: the type of keys, as it shows it."""

    def __init__(self, lifting: Lifting, module: str, name: str, key_type: Any) -> None:
        self.lifting, self.module, self.name, self.key_type = lifting, module, name, key_type

    def is_key(self, value: Any) -> bool:
        """Whether it is an array of typed keys."""
        if not isinstance(value, self.lifting.own):
            return False
        return bool(self._type(value) == dtypes.key.np)

    def key_of(self, where: str, key: Any, batched: bool = False) -> tuple[Tensor, bool]:
        """The tensor of typed keys, and whether they came as words."""
        raw = not self.is_key(key)
        if raw and not isinstance(key, (self.lifting.own, np.ndarray, np.generic, int, float)):
            raise TypeError(f"unexpected PRNG key type {type(key)}")
        found = self._of_words(key) if raw else self.lifting.take(key)[0]
        if not batched and found.ndim:
            raise ValueError(
                f"{where} accepts a single key, but was given a key array of shape "
                f"{tuple(key.shape)} != (). Use {self._vmap} for batching."
            )
        return found, raw

    def _type(self, words: Any) -> Any:
        own = isinstance(words, self.lifting.own)
        return self.lifting.take(words)[0].meta()[1] if own else words.dtype

    @property
    def _vmap(self) -> str:
        return f"{self.module.partition('.')[0]}.vmap"

    def _of_words(self, words: Any) -> Tensor:
        wrong = (
            "have ndim, shape, and dtype attributes. Got {}" if not hasattr(words, "ndim")
            else ".ndim >= 1; got ndim={0.ndim}" if words.ndim < 1
            else ".shape to end with (2,); got shape={0.shape}" if words.shape[-1] != 2
            else ".dtype = uint32; got dtype={0.dtype}" if self._type(words) != np.uint32 else ""
        )  # fmt: skip
        if wrong:
            to = "" if wrong[0] == "." else " to "
            said = f"{self.name} encountered invalid PRNG key data: expected key_data{to}{wrong}"
            raise TypeError(said.format(words))
        return keys.of_data(self.lifting.one("key_data", words))

    def seeded(self, where: str, seed: Any, *impls: Any) -> Tensor:
        """The key of an integer; ``impls``: what a caller says of how numbers are to be made."""
        if all(i is not None for i in impls[:2]) and len(impls) > 1:
            raise ValueError(
                f"Cannot specify both `impl` and `dtype` arguments to {self.module}.{where}"
            )
        for impl in impls:
            self._check_impl(impl)
        if where == "wrap_key_data":
            return self._of_words(seed)
        if self.is_key(seed):
            raise TypeError(f"{where} accepts a scalar seed, but was given a PRNG key.")
        if np.ndim(seed):
            raise TypeError(
                f"{where} accepts a scalar seed, but was given an array of shape {np.shape(seed)} "
                f"!= (). Use {self._vmap} for batching"
            )
        if isinstance(seed, int) and not isinstance(seed, bool):
            seed = np.asarray(np.int64(seed)).astype(self.lifting.known(np.int64))
        value = self.lifting.one(where, seed)
        if value.meta()[1].kind not in "iu":
            raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")
        return keys.seed(value)

    def _check_impl(self, impl: Any) -> None:
        if impl in ("rbg", "unsafe_rbg"):
            raise NotImplementedError(f"the PRNG implementation {impl!r} is not here; {IMPL!r} is")
        if impl is not None and impl != IMPL and not isinstance(impl, type(self.key_type)):
            error = ValueError if isinstance(impl, str) else TypeError
            said = f'unrecognized PRNG implementation "{impl}". Did you mean one of: "{IMPL}"?'
            raise error(said)

    def _given(self, value: Tensor, raw: bool = False) -> Any:
        return self.lifting.give(keys.data(value) if raw else value, False)

    def key(self, seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
        """A typed key of an integer."""
        return self._given(self.seeded("key", seed, impl, dtype))

    def wrap_key_data(self, key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
        """Typed keys of words."""
        return self._given(self.seeded("wrap_key_data", key_bits_array, impl, dtype))

    def key_data(self, keys: Any) -> Any:
        """The words of keys, uint32 [..., 2]."""
        return self._given(self.key_of("key_data", keys, True)[0], True)

    def key_dtype(self, impl: Any = None) -> Any:
        """The type of keys."""
        return self.key_type

    def key_impl(self, keys: Any) -> str:
        """How numbers are made of these keys."""
        return IMPL if self.key_of("key_impl", keys, True) else ""

    def clone(self, key: Any) -> Any:
        """The key once more."""
        return key

    def split(self, key: Any, num: int | tuple[int, ...] = 2) -> Any:
        """New keys."""
        found, raw = self.key_of("split", key)
        return self._given(keys.split(found, shape_of(num)), raw)

    def fold_in(self, key: Any, data: Any) -> Any:
        """The key of a key and a number."""
        found, raw = self.key_of("fold_in", key)
        if np.ndim(data):
            raise TypeError(
                f"fold_in accepts a scalar, but was given an array ofshape {np.shape(data)} != (). "
                f"Use {self._vmap} for batching."
            )
        if isinstance(data, int) and not 0 <= data < 1 << 32:
            raise OverflowError(f"Python integer {data} out of bounds for uint32")
        number = data if isinstance(data, int) else self.lifting.one("fold_in", data)
        return self._given(keys.fold_in(found, number), raw)

    def _items(self, where: str, x: Any) -> Any:
        """An array, or how many there are."""
        if np.ndim(x):
            return self.lifting.made(self.lifting.plain(x), None)[0]
        if self.lifting.kind_of(self.lifting.plain(x), where)[0].kind not in "iu":
            raise TypeError("x must be an integer or at least 1-dimensional")
        return index(x)

    def _whole(self, out: Tensor, items: Any) -> Any:
        kind = self.lifting.known(np.int64)
        return self._given(cast(out, kind) if isinstance(items, int) else out)

    def permutation(
        self, key: Any, x: Any, axis: int = 0, independent: bool = False, *,
        out_sharding: Any = None,
    ) -> Any:  # fmt: skip
        """A range, or an array along ``axis``, shuffled."""
        found, items = self.key_of("permutation", key)[0], self._items("permutation", x)
        return self._whole(choices.permutation(found, items, axis, independent), items)

    def choice(
        self, key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None,
        axis: int = 0, mode: str | None = None,
    ) -> Any:  # fmt: skip
        """A sample of an array along ``axis``, or of a range."""
        if not isinstance(shape, (tuple, list)):
            said = f"shape argument of {self.module}.choice must be a sequence, got {shape}"
            raise TypeError(said)
        found, items = self.key_of("choice", key)[0], self._items("choice", a)
        chances = None if p is None else self.lifting.made(self.lifting.plain(p), None)[0]
        if chances is not None:
            chances = cast(chances, lattice.inexact(chances.meta()[1]))
        out = choices.choice(found, items, shape_of(shape), replace, chances, axis, mode)
        return self._whole(out, items)

    def names(self) -> dict[str, Any]:
        """These functions by their names."""
        return {name: getattr(self, name) for name in _METHODS.split()}
