"""What the numbers mean by which LAPACK tells that it failed, as errors; and losses that have no
derivative."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import AutogradError, LinAlgError


def no_failure(where: str, info: np.ndarray, said: Callable[[int], str]) -> None:
    """``LinAlgError`` unless every number of ``info`` is 0; ``said`` tells what another means."""
    numbers = info.reshape(-1).tolist()
    for i, number in enumerate(numbers):
        if number:
            element = f"(Batch element {i}): " if info.ndim else ""
            raise LinAlgError(f"{where}: {element}{said(number)}")


def singular(number: int) -> str:
    """What LAPACK's number says where a matrix is inverted."""
    return (
        f"The diagonal element {number} is zero, the inversion could not be completed because the "
        "input matrix is singular."
    )


def unsolvable(number: int) -> str:
    """What LAPACK's number says where equations are solved."""
    return "The solver failed because the input matrix is singular."


def indefinite(number: int) -> str:
    """What LAPACK's number says where a positive definite matrix is factored."""
    return (
        "The factorization could not be completed because the input is not positive-definite (the "
        f"leading minor of order {number} is not positive-definite)."
    )


def flat(number: int) -> str:
    """What LAPACK's number says of factors that will be divided by."""
    return (
        f"U[{number},{number}] is zero and using it on lu_solve would result in a division by "
        "zero. If you still want to perform the factorization, consider calling linalg.lu(A, "
        "pivot) or linalg.lu_factor_ex(A, pivot)"
    )


def phase_free(where: str, products: object) -> None:
    """Refuse a loss that depends on the phases of complex vectors, which the matrix leaves free:
    the imaginary part of the diagonal of (vectors' adjoint times their gradient) is then not 0."""
    if isinstance(products, np.ndarray) and products.dtype.kind == "c":
        found = np.diagonal(products, 0, -2, -1).imag
        if not np.allclose(found, 0, rtol=1e-2, atol=1e-2, equal_nan=True):
            raise AutogradError(
                f"{where}: The singular vectors or eigenvectors in the complex case are specified "
                "up to multiplication by e^{i phi}. The specified loss function depends on this "
                "quantity, so it is ill-defined."
            )
