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


class _OfTracer(Exception):
    """An error about a value that is traced: ``text`` of it, and of the function it is of."""

    text = "{context}{origin}"

    def __init__(self, tracer: Any, context: str = "") -> None:
        said = self.text.format(
            of=described(tracer), tracer=tracer, context=context, origin=_origin(tracer)
        )
        super().__init__(f"{said}\n{_SEE}{type(self).__name__}")


class ConcretizationTypeError(_OfTracer, JAXTypeError):
    """A value that is traced was needed as a number."""

    text = (
        "Abstract tracer value encountered where concrete value is expected: {of}\n"
        "{context}{origin}"
    )


class TracerBoolConversionError(ConcretizationTypeError):
    """``if`` or ``while`` on a traced value."""

    text = "Attempted boolean conversion of {of}.{origin}"


class TracerArrayConversionError(_OfTracer, JAXTypeError):
    """A traced value was given to numpy."""

    text = "The numpy.ndarray conversion method __array__() was called on {of}{origin}"


class TracerIntegerConversionError(_OfTracer, JAXTypeError):
    """A traced value was used as an index of Python's."""

    text = "The __index__() method was called on {of}{origin}"


class NonConcreteBooleanIndexError(_OfTracer, JAXIndexError):
    """A mask that is traced was used as an index."""

    text = "Array boolean indices must be concrete; got {tracer!r}\n"


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
    return "" if about is None else f"\n{about.origin(level, tracer._value)}"
