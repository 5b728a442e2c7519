"""A kernel for what it is given: a number where an array may stand, and the other way round. Pure.

On an accelerator a number that only the device knows (a scale, the size of a step) must not make
the host wait, and one that only the host knows (``x * 2``) need not be copied there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .kernel import Array, Kernel, Scalar


def for_arguments(kernel: Kernel, arrays: Sequence[bool]) -> Kernel:
    """``kernel`` with parameters of the kinds given: ``arrays`` says of each whether it is one.

    An array that is only read may be a number, and a number an array of one element; ``TypeError``
    for any other."""
    params = list(kernel.params)
    for k, (p, is_array) in enumerate(zip(params, arrays, strict=True)):
        if isinstance(p, Scalar) and is_array:
            params[k] = Array(p.name, p.dtype, "one")
        elif isinstance(p, Array) and not is_array:
            if p.writes:
                raise TypeError(f"kernel {kernel.name}: {p.name} is a number; it is written to")
            params[k] = Scalar(p.name, p.dtype)
    return kernel if params == list(kernel.params) else replace(kernel, params=tuple(params))
