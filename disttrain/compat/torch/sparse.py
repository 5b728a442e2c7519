"""``torch.sparse``: functions, and the old types of sparse tensors, which are functions that make
them."""

from __future__ import annotations

from typing import Any

import disttrain as dt

from ...core.tensor import Tensor
from ...core.types import dtypes
from ..publish import Shim
from .top.legacy import KINDS


class _Sparse(type):
    """``FloatTensor(indices, values, size)``, or sizes alone."""

    kind: dtypes.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        if not args or isinstance(args[0], int):
            return dt.sparse_coo_tensor(size=args or (0,), dtype=cls.kind, **kwargs)
        if len(args) == 1:  # a size
            return dt.sparse_coo_tensor(size=tuple(args[0]), dtype=cls.kind, **kwargs)
        values = args[1]
        if isinstance(values, Tensor) and values.dtype is not cls.kind:
            raise RuntimeError(
                f"torch.sparse.{cls.__name__}: expected values of {cls.kind!r}, but got values of "
                f"{values.dtype!r}"
            )
        return dt.sparse_coo_tensor(*args, dtype=cls.kind, **kwargs)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and value.is_sparse and value.dtype is cls.kind


def module() -> Shim:
    """``torch.sparse``."""
    kinds = {name: _Sparse(name, (), {"kind": kind}) for name, kind in KINDS.items()}
    return Shim("torch.sparse").later(lambda shim: shim.take(dt.sparse)).give(**kinds)
