"""What a distributed array is, as data: a part per rank, a mesh, placements, the whole's shape.

How its parts move is in ``movement``, how operations on it run in ``dispatch``; both make new ones
by ``make``, and know no more than this class. ``array`` puts the three together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.null import NullArray
from ...errors import PlacementError
from ..mesh import DeviceMesh
from .placements import local_shape


class Spread(ArrayKind):
    """``local``: this rank's part, an array of any other kind (numpy's; a ``NullArray`` on the meta
    device).

    What are views of one another for the program share ``writes``, a count of writes in a list. A
    view that had to move data is a copy: ``origin`` says of what, and ``seen`` up to which write.
    ``steps``: strides of the whole, in bytes; None: elements lie in order, here and in the whole.
    They follow from shapes and operations alone, so that all ranks agree on what shares memory.
    ``away``: brings ``local`` back, where that was taken away for a while.
    """

    __slots__ = (
        "__weakref__", "away", "dtype", "local", "mesh", "origin", "placements", "seen", "shape",
        "steps", "writes",
    )  # fmt: skip
    weight = 10

    def __init__(self, local: Any, mesh: DeviceMesh, placements: tuple, shape: tuple) -> None:
        self.local, self.mesh, self.placements = local, mesh, placements
        self.shape, self.dtype = tuple(shape), local.dtype
        self.writes, self.seen = [0], 0
        self.origin: Any = None
        self.away: Callable[[], None] | None = None
        self.steps: Any = None

    def __getattr__(self, name: str) -> Any:
        if name != "local" or self.away is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.away()
        return self.local

    def lying(self) -> Any:
        return None if self.away is not None else self.local

    @property
    def strides(self) -> tuple[int, ...]:
        """Of the whole, in bytes."""
        return NullArray(self.shape, self.dtype).strides if self.steps is None else self.steps

    @property
    def flags(self) -> Any:
        """Of the whole."""
        return self.stand_in().flags

    def stand_in(self) -> np.ndarray:
        """An array of the whole's shape and strides over no memory: only to be viewed."""
        return np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, self.strides)

    @property
    def has_data(self) -> bool:  # type: ignore[override]
        return not isinstance(self.local, NullArray)

    @property
    def place(self) -> tuple[str, int | None]:  # type: ignore[override]
        """The device of this rank's part."""
        return self.local.place if isinstance(self.local, ArrayKind) else ("cpu", None)

    @property
    def base(self) -> Any:
        return None

    def make(self, local: object, placements: tuple, shape: tuple) -> Any:
        """An array on the same mesh."""
        return self.__class__(local, self.mesh, placements, shape)

    def like(self, local: object) -> Any:
        """An array that lies as this one, with other numbers."""
        return self.__class__(local, self.mesh, self.placements, self.shape)

    def each_part(self, fn: Callable) -> Spread:
        return self.like(fn(self.local))

    def copy(self, order: str = "K") -> Spread:
        return self.like(self.local.copy(order="C"))

    def local_shape(self) -> tuple:
        """The shape of this rank's part."""
        return local_shape(
            self.shape, self.mesh.ranks.shape, self.mesh.get_coordinate(), self.placements
        )

    def shares_with(self, other: object) -> bool:
        return isinstance(other, Spread) and self.writes is other.writes

    def __repr__(self) -> str:
        return f"Spread({self.shape}, {self.dtype}, {self.placements} on {self.mesh})"

    def _no_numbers(self, *args: object, **kwargs: object) -> NoReturn:
        raise PlacementError(
            f"a DTensor of shape {list(self.shape)}, {self.placements} on {self.mesh}, was used as "
            "plain numbers (numpy, a list, an array): this rank holds only a part of it; take "
            ".full_tensor() on every rank, or .to_local() for this rank's part"
        )

    __array__ = __bool__ = __float__ = __int__ = __iter__ = __getitem__ = __setitem__ = _no_numbers
    tolist = tobytes = view = reshape = astype = _no_numbers
    __array_interface__ = property(_no_numbers)
