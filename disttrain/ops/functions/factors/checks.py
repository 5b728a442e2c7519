"""What functions of matrices ask of their arguments."""

from __future__ import annotations

from ....core.tensor import Tensor
from ....errors import DTypeError, ShapeError
from ...promotion import refuse
from ..args import broadcast
from ..args import tensor as as_input
from ..views.shapes import expand


def matrices(where: str, A: Tensor, name: str = "A") -> Tensor:  # noqa: N803
    """``A`` if it is a tensor of matrices, else an error."""
    if as_input(A, where, name).ndim < 2:
        raise ShapeError(
            f"{where}: The input tensor {name} must have at least 2 dimensions; shape "
            f"{list(A.shape)} given"
        )
    return A


def square(where: str, A: Tensor) -> Tensor:  # noqa: N803
    """``A`` if its matrices are square, else an error."""
    rows, columns = matrices(where, A).shape[-2:]
    if rows != columns:
        raise ShapeError(
            f"{where}: A must be batches of square matrices, but they are {rows} by {columns} "
            "matrices"
        )
    return A


def floating(where: str, A: Tensor) -> Tensor:  # noqa: N803
    """``A`` if LAPACK takes its type, else an error."""
    kind = as_input(A, where, "A").meta()[1]
    if kind.kind not in "fVc":
        raise refuse(where, kind)
    if kind.char not in "fdFD":
        raise DTypeError(
            f"{where}: Low precision dtypes not supported. Got {A.dtype!r}; convert with .float()"
        )
    return A


def one_type(where: str, A: Tensor, B: Tensor) -> None:  # noqa: N803
    """Refuse two tensors of different types."""
    if A.dtype is not B.dtype:
        raise DTypeError(
            f"{where}: Expected A and B to have the same dtype, but found A of type {A.dtype!r} "
            f"and B of type {B.dtype!r} instead"
        )


def one_batch(where: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of matrices with their leading dimensions broadcast."""
    lead = broadcast(where, *(t.shape[:-2] for t in tensors))
    return tuple(expand(t, (*lead, *t.shape[-2:])) for t in tensors)


def equations(where: str, A: Tensor, B: Tensor, left: bool) -> None:  # noqa: N803
    """Refuse a system AX = B (or XA = B) whose sides do not fit."""
    matrices(where, A)
    matrices(where, B, "B")
    if A.shape[-1] != B.shape[-2 if left else -1]:
        raise ShapeError(
            f"{where}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{A.shape[-1]} and {B.shape[-2]}x"
            f"{B.shape[-1]})"
        )
