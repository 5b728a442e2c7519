"""Parameter, Buffer and their uninitialised forms: tensors that a Module registers by assignment.

Knows tensors, knows nothing of modules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.null import NullArray
from ..core import Tensor, no_grad, wrap
from ..core.annotations import DeviceLike, DTypeLike
from ..core.classes import class_for, joined
from ..core.node import know_names
from ..core.types import dtypes
from ..core.types.device import CPU, located, usable
from ..errors import LayoutError, ShapeError, UninitializedError
from ..ops.functions.sparse.structured import Structured


def empty(shape: tuple, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """A new tensor with memory (none on the meta device) and no values yet."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    where = usable(device)
    if any(n < 0 for n in shape):
        raise ShapeError(f"shape {list(shape)} given; sizes cannot be negative")
    if where is CPU:
        return wrap(np.empty(shape, kind.np))
    there = located(where)
    if there is None:
        return wrap(NullArray(shape, kind.np))
    return wrap(there.make(lambda xp: xp.empty(shape, kind.np)))


def _share(cls: type, data: Tensor) -> Any:
    """A ``cls`` over the memory of ``data``, outside the graph."""
    if not isinstance(data, Tensor):
        raise TypeError(
            f"{cls.__name__}: {type(data).__name__} given; a Tensor is needed, for example "
            f"nn.{cls.__name__}(dt.tensor(data))"
        )
    if isinstance(data, Structured):  # its places and values, without a graph
        kind: Any = data._plain_class()
        return object.__new__(joined(cls, kind)).over(data)
    if data._composes is not None:
        raise LayoutError(f"{cls.__name__}: a tensor of layout {data.layout!r} given")
    out: Any = object.__new__(class_for(data.array, cls))
    out.array = data.array
    st = out._st = data.storage_cell()
    out._gen = st.gen
    return out


class Parameter(Tensor):
    """A tensor that a module trains: a leaf, with ``requires_grad`` unless told otherwise.

    Shares the memory of ``data``. Assigned to an attribute of a Module it is registered there.
    """

    copied_alone = True

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        out = _share(cls, empty((0,)) if data is None else data)
        if requires_grad:
            out.requires_grad_()
        return out

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        pass


know_names(Parameter, "array _st _gen _node _grad _view _idle")


class Buffer(Tensor):
    """A tensor that belongs to a module's state but is not trained.

    Assigned to an attribute of a Module it is registered as a buffer; ``persistent`` ones are part
    of ``state_dict``.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        out = _share(cls, empty((0,)) if data is None else data)
        out.persistent = persistent
        return out

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass


class _Uninitialized:
    """A tensor whose shape is not known yet. ``materialize(shape)`` gives it memory."""

    _final: type
    array: Any
    _node: Any

    def materialize(
        self, shape: Any, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> None:
        """Take a shape and memory; from then on this is an ordinary Parameter or Buffer."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        kept, needs = self.array, self._node is not None
        where = self.device if device is None else device  # type: ignore[attr-defined]
        kind = dtypes.of(kept.dtype) if dtype is None else dtype
        self._node = None
        self.__class__ = self._final
        self.array = empty(shape, kind, where).array
        if needs:
            self.requires_grad_()  # type: ignore[attr-defined]

    def _unknown(self, *args: object) -> Any:
        raise UninitializedError(
            "uninitialized parameter: its shape is not known before the lazy module's first "
            "forward; run one batch through the module (a dry run) first"
        )

    shape = property(_unknown)
    ndim = property(_unknown)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A Parameter of a lazy module before its first forward."""

    _final = Parameter

    def __new__(
        cls,
        requires_grad: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> UninitializedParameter:
        out = _share(cls, empty((0,), dtype, device))
        if requires_grad:
            out.requires_grad_()
        return out

    def __init__(
        self,
        requires_grad: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        pass

    def __deepcopy__(self, memo: dict) -> UninitializedParameter:
        out = type(self)(self._node is not None, self.device, self.dtype)
        memo[id(self)] = out
        return out


class UninitializedBuffer(_Uninitialized, Buffer):
    """A Buffer of a lazy module before its first forward."""

    _final = Buffer

    def __new__(
        cls,
        *,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        persistent: bool = True,
    ) -> UninitializedBuffer:
        out = _share(cls, empty((0,), dtype, device))
        out.persistent = persistent
        return out

    def __init__(
        self,
        *,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        persistent: bool = True,
    ) -> None:
        pass

    def __deepcopy__(self, memo: dict) -> UninitializedBuffer:
        out = type(self)(device=self.device, dtype=self.dtype, persistent=self.persistent)
        memo[id(self)] = out
        return out


def is_lazy(param: Tensor) -> bool:
    """Does ``param`` still wait for its shape?"""
    return isinstance(param, _Uninitialized)


def replace_data(param: Tensor, value: Tensor) -> None:
    """Make ``param`` a view of ``value``'s memory: shape, type and device may change.

    The parameter's identity, its place in optimizers and its hooks stay.
    """
    if value.array is param.array:
        return
    with no_grad():
        param.data = value.detach()
    node = param._node
    if node is not None:
        node.shape, node.dtype = param.meta()


_OF_FACTORIES = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """What functions such as ``empty`` take of a module's ``kwargs`` (and of a dict named
    ``factory_kwargs`` among them), by name; anything else is a ``TypeError``."""
    given = dict(kwargs or {})
    inner = given.pop("factory_kwargs", {})
    unknown = given.keys() - set(_OF_FACTORIES)
    if unknown:
        raise TypeError(f"factory_kwargs: unexpected kwargs {sorted(unknown)}")
    for name in _OF_FACTORIES:
        if name in given and name in inner:
            raise TypeError(f"factory_kwargs: {name} specified twice")
    return {**inner, **given}
