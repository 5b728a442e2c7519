"""``jax.errors``: what is raised where a program asks of a traced value what it has not."""

from __future__ import annotations

from typing import Any

from ...errors import EscapedValue

UnexpectedTracerError = EscapedValue  # a value that has outlived its function

_SEE = "See https://docs.jax.dev/en/latest/errors.html#jax.errors."


class JAXTypeError(TypeError):
    """A type that does not serve."""


class JAXIndexError(IndexError):
    """An index that does not serve."""


class ConcretizationTypeError(JAXTypeError):
    """A value that is traced was needed as a number."""

    def __init__(self, tracer: Any, context: str = "") -> None:
        super().__init__(
            "Abstract tracer value encountered where concrete value is expected: "
            f"{described(tracer)}\n{context}{_origin(tracer)}\n{_SEE}ConcretizationTypeError"
        )


class TracerBoolConversionError(ConcretizationTypeError):
    """``if`` or ``while`` on a traced value."""

    def __init__(self, tracer: Any) -> None:
        JAXTypeError.__init__(
            self,
            f"Attempted boolean conversion of {described(tracer)}.{_origin(tracer)}\n"
            f"{_SEE}TracerBoolConversionError",
        )


class TracerArrayConversionError(JAXTypeError):
    """A traced value was given to numpy."""

    def __init__(self, tracer: Any) -> None:
        super().__init__(
            f"The numpy.ndarray conversion method __array__() was called on {described(tracer)}"
            f"{_origin(tracer)}\n{_SEE}TracerArrayConversionError"
        )


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used as an index of Python's."""

    def __init__(self, tracer: Any) -> None:
        super().__init__(
            f"The __index__() method was called on {described(tracer)}{_origin(tracer)}\n"
            f"{_SEE}TracerIntegerConversionError"
        )


class NonConcreteBooleanIndexError(JAXIndexError):
    """A mask that is traced was used as an index."""

    def __init__(self, tracer: Any) -> None:
        super().__init__(
            f"Array boolean indices must be concrete; got {tracer!r}\n\n"
            f"{_SEE}NonConcreteBooleanIndexError"
        )


class KeyReuseError(RuntimeError):
    """A key was used twice."""


class JaxRuntimeError(RuntimeError):
    """Something failed while a program ran."""


def described(tracer: Any) -> str:
    """A traced array in words."""
    return f"traced array with shape {short(tracer)}"


def short(array: Any) -> str:
    """Its type and shape: float32[2,3]."""
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _origin(tracer: Any) -> str:
    """The function that is staged, and the arguments that ``tracer`` depends on."""
    level = getattr(tracer._value, "interp", None)
    about = getattr(level, "about", None)
    if about is None:
        return ""
    assert level is not None
    names = [n for i, n in enumerate(about.names()) if i in level.inputs_of(tracer._value)]
    several = "s" if len(names) > 1 else ""
    why = f"depends on the value{several} of the argument{several} {' and '.join(names)}"
    return (
        f"\nThe error occurred while tracing the function {about.fun} for {about.transform}. This "
        f"concrete value was not available in Python because it {why}."
    )
