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


_CODES = {
    "CancelledError": 1, "UnknownError": 2, "InvalidArgumentError": 3, "DeadlineExceededError": 4,
    "NotFoundError": 5, "AlreadyExistsError": 6, "PermissionDeniedError": 7,
    "ResourceExhaustedError": 8, "FailedPreconditionError": 9, "AbortedError": 10,
    "OutOfRangeError": 11, "UnimplementedError": 12, "InternalError": 13, "UnavailableError": 14,
    "DataLossError": 15, "UnauthenticatedError": 16,
}  # fmt: skip
NAMES: dict[str, Any] = {
    name: type(name, (OpError,), {"error_code": code, "__module__": "tensorflow.errors"})
    for name, code in _CODES.items()
}
InvalidArgumentError: Any = NAMES["InvalidArgumentError"]
NAMES["OpError"] = OpError


class OperatorNotAllowedInGraphError(TypeError):
    """Python asked a symbolic tensor for its value."""


class InaccessibleTensorError(TypeError, ValueError):
    """A tensor of a function that has been traced is used outside of it."""


NAMES |= {
    "OperatorNotAllowedInGraphError": OperatorNotAllowedInGraphError,
    "InaccessibleTensorError": InaccessibleTensorError,
}


def invalid(message: str, name: str = "InvalidArgumentError") -> Exception:
    """An error of ``tf.errors``."""
    found: Exception = NAMES[name](None, None, message)
    return found


def failed(op: str, message: str) -> OpError:
    """What an operation raises for arguments that it cannot take."""
    return InvalidArgumentError(None, None, f"{message} [Op:{op}]")


# What is raised by what computes, and stands for wrong arguments.
FAILURES = (DisttrainError, ValueError, TypeError, IndexError, RuntimeError, ZeroDivisionError)
