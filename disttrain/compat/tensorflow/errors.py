"""``tf.errors``: TensorFlow's exceptions, and what those of operations become under its name."""

from __future__ import annotations

from typing import Any

from ...errors import DisttrainError


class OpError(Exception):
    """An operation failed."""

    error_code = 2

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        super().__init__(message)
        self.node_def, self.op, self.message = node_def, op, message
        self.experimental_payloads: dict = {}


def _kinds(base: type, *more: type, **codes: int) -> dict[str, Any]:
    return {n: type(n, (base, *more), {"error_code": c, "__module__": "tensorflow.errors"})
            for n, c in codes.items()}  # fmt: skip


NAMES: dict[str, Any] = {
    "OpError": OpError, **_kinds(
        OpError, CancelledError=1, UnknownError=2, InvalidArgumentError=3, DeadlineExceededError=4,
        NotFoundError=5, AlreadyExistsError=6, PermissionDeniedError=7, ResourceExhaustedError=8,
        FailedPreconditionError=9, AbortedError=10, OutOfRangeError=11, UnimplementedError=12,
        InternalError=13, UnavailableError=14, DataLossError=15, UnauthenticatedError=16),
    # Python asked a symbolic tensor for its value; one is used outside of its function.
    **_kinds(TypeError, OperatorNotAllowedInGraphError=2),
    **_kinds(TypeError, ValueError, InaccessibleTensorError=2),
}  # fmt: skip
InvalidArgumentError: Any = NAMES["InvalidArgumentError"]
InaccessibleTensorError: Any = NAMES["InaccessibleTensorError"]
OperatorNotAllowedInGraphError: Any = NAMES["OperatorNotAllowedInGraphError"]


def invalid(message: str, name: str = "InvalidArgumentError") -> Any:
    """An error of ``tf.errors``."""
    return NAMES[name](None, None, message)


def failed(op: str, message: str) -> OpError:
    """What an operation raises for arguments that it cannot take."""
    found: OpError = invalid(f"{message} [Op:{op}]")
    return found


# What is raised by what computes, and stands for wrong arguments.
FAILURES = (DisttrainError, ValueError, TypeError, IndexError, RuntimeError, ZeroDivisionError)
