"""Numbers as mantissas and exponents."""

from __future__ import annotations

from typing import NamedTuple

from ....core.tensor import Tensor
from ....errors import DTypeError
from ...primitives import special as sp
from ..args import tensor as as_input


class Frexp(NamedTuple):
    """``mantissa * 2 ** exponent`` is the number."""

    mantissa: Tensor
    exponent: Tensor


def frexp(input: Tensor) -> Frexp:
    """Each number as a mantissa of size 0.5 to 1 (0, infinities and nan: itself) and an exponent of
    2 (int32)."""
    if not as_input(input, "frexp").dtype.is_floating_point:
        raise DTypeError(
            f"torch.frexp() only supports floating-point dtypes; {input.dtype!r} given"
        )
    return Frexp(sp.mantissa(input), sp.exponent(input))


__all__ = ["frexp"]
