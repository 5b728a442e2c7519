"""The memory of a tensor as a flat sequence of numbers: the public ``TypedStorage``."""

from __future__ import annotations

from typing import Any

from ...core import device, dtypes, sharing
from ...core.tensor import Tensor, wrap
from ..primitives import aliases as prim
from .aliases import UntypedStorage


class TypedStorage:
    """All elements of the memory that a tensor lies in, whatever its shape and strides. Writing to
    it writes to every tensor over that memory, unnoticed by autograd."""

    def __init__(self, owner: Tensor) -> None:
        self._like = owner.detach()

    def untyped(self) -> UntypedStorage | None:
        """The same as bytes; None on the meta device."""
        return None if self._like.is_meta else UntypedStorage(self._like)

    @property
    def dtype(self) -> dtypes.dtype:
        """The type of the elements."""
        return self._like.dtype

    @property
    def device(self) -> device:
        """Where it is."""
        return self._like.device

    def _flat(self) -> Tensor:
        if self._like.is_meta:
            return self._like.reshape(-1)
        array = self._like.array
        memory = prim.storage_of(array)
        return wrap(memory[: memory.size // array.itemsize * array.itemsize].view(array.dtype))

    def size(self) -> int:
        """How many elements there are."""
        return self._flat().numel()

    __len__ = size

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self.size() * self._like.itemsize

    def data_ptr(self) -> int:
        """The address of the first element; 0 where there is no memory."""
        return 0 if self._like.is_meta else UntypedStorage(self._like).data_ptr()

    _cdata = property(data_ptr)

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._like.itemsize

    def tolist(self) -> list:
        """The elements."""
        return self._flat().tolist()

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        found = self._flat()[index]
        return found.item() if found.ndim == 0 else found.storage()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._flat()[index] = value

    def fill_(self, value: Any) -> TypedStorage:
        """Set all elements; returns self."""
        self._flat().fill_(value)
        return self

    def is_shared(self) -> bool:
        """Can other processes see it?"""
        return sharing.is_shared(self._like)

    def share_memory_(self) -> TypedStorage:
        """Let other processes see it; returns self."""
        sharing.share([self._like])
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self._place() == other._place()

    def __hash__(self) -> int:
        return hash(self._place())

    def _place(self) -> tuple:
        return self.data_ptr(), self.dtype, self.size()

    def __repr__(self) -> str:
        lines = "".join(f" {value}\n" for value in self.tolist())
        return (
            f"{lines}[TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"
        )


def storage(input: Tensor) -> TypedStorage:
    """The memory of ``input``: equal for tensors that share it."""
    return TypedStorage(input)
