"""Arrays that compute by themselves: what stands in ``Tensor.array`` where it is not numpy's.

A kind answers for every primitive that one of its arrays is given to (``run``), so that the gate,
the rules and the engine above it need no second code path. Knows no primitive and no Tensor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class ArrayKind:
    """Has ``shape``, ``dtype``, ``ndim``, ``size``, ``itemsize`` and ``nbytes``, as numpy's have.

    ``tensor_class``: the class of Tensors over such arrays (None: Tensor). ``weight``: where kinds
    meet in one operation, the one of the greatest weight answers.
    """

    __slots__ = ()
    __array_ufunc__ = None
    __array_priority__ = 1000
    tensor_class: Any = None
    weight = 0
    has_data = True
    outward = False  # operations on such arrays may reach other ranks
    as_host = False  # whether gradients over such arrays are kept as those of the host are
    rules_on_tensors = False  # nodes of such results are ``TensorNode``s
    place: tuple[str, int | None] = ("cpu", None)  # kind and number of the device
    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each dimension, of kinds that have memory."""
        raise AttributeError(f"{type(self).__name__} has no strides")

    places_others = False  # tensors made like one over such an array lie as it does: ``similar``

    def lying(self) -> Any:
        """The array that it lies in here, where that is numpy's and there now."""
        return None

    @classmethod
    def surroundings(cls) -> Any:
        """What makes, called, a block in which operations on such arrays mean what they do now;
        None where nothing around them matters."""
        return None

    def run(self, prim: Any, arrays: object, params: dict) -> Any:
        """The result of ``prim`` on ``arrays``, one of which is this one."""
        raise NotImplementedError

    def ones(self) -> Any:
        """An array like this one, full of ones."""
        raise NotImplementedError

    def zeros(self) -> Any:
        """An array like this one, full of zeros."""
        raise NotImplementedError

    def blank(self, shape: tuple, dtype: np.dtype) -> Any:
        """Zeros of another shape and type that meet this array in operations."""
        return self.beside(np.zeros(shape, dtype))

    def copy(self, order: str = "K") -> Any:
        """Another array of the same values."""
        raise NotImplementedError

    def similar(self, make: object, shape: tuple, dtype: object, meta: bool) -> Any:
        """An array of ``shape`` placed as this one, whose parts are ``make(shape, dtype)``."""
        raise NotImplementedError

    def together(self, others: object) -> list | None:
        """Raw arrays of the parts that lie here of this array and of ``others``, where they lie
        alike, so that what is done element by element can be done on them; None where it cannot.
        Arrays of one element and no kind go along as they are."""
        return None

    def here(self) -> Any:
        """The accelerator's device (``Located``) that what ``together`` gives lies on; None: the
        host."""
        return None

    def over_parts(self, values: object, how: str) -> Any:
        """Numbers that were computed from the part that lies here, as they are for the whole:
        their "sum", "max" or "min" over the parts."""
        return values

    def everywhere(self, number: object) -> Any:
        """``number``, which every rank has, as an array of this kind."""
        return number

    def where(self) -> Any:
        """Arrays for which this is equal lie alike, and may share calls of ``over_parts``."""
        return None

    def drawn(self, prim: Any, params: dict, then: Any = None) -> Any:
        """``then(prim(**params))``, random numbers of this shape, placed as this one."""
        raise NotImplementedError

    def whole(self) -> Any:
        """The array with all the numbers."""
        return self

    def whole_of(self, t: object) -> Any:
        """``t``, a Tensor over this array, as one over the array with all the numbers; recorded."""
        return t

    def taken_in(self, t: object) -> Any:
        """``t``, a Tensor that is the same everywhere, to be used with this array; recorded."""
        return t

    def each_part(self, fn: Any) -> Any:
        """An array that lies as this one, whose part here is ``fn`` of this one's."""
        raise NotImplementedError

    def beside(self, array: object) -> Any:
        """``array``, known everywhere, as an array that meets this one in operations."""
        return array

    def as_gradient(self, g: object) -> Any:
        """``g``, the gradient of a leaf that holds this array, as it shall lie in ``.grad``."""
        return g

    def owned(self, alone: bool) -> Any:
        """This array, which ``as_gradient`` made, in memory that may be written to. ``alone``:
        nobody else has it."""
        return self

    def placed(self, t: object) -> Any:
        """``as_gradient`` for a Tensor, recorded."""
        return t

    def shares_with(self, other: object) -> bool:
        """Whether this, made by a view of ``other``, has its memory."""
        return True

    def add_in_place(self, g: object) -> None:
        """Add ``g``, which lies as ``as_gradient`` made it, to this array."""
        raise NotImplementedError


def heaviest(arrays: Any) -> ArrayKind:
    """Which of ``arrays`` answers for an operation on all of them."""
    found = None
    for a in arrays:
        if isinstance(a, ArrayKind) and (found is None or a.weight > found.weight):
            found = a
    assert found is not None
    return found
