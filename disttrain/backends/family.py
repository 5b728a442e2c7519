"""One kernel for many element types. What makes machine code is loaded with the first program."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import DTypeError
from .lang.kernel import COMPUTE, Kernel


class Family(dict):
    """Programs by element type, made when first asked for: ``family[x.dtype].fast(x, out)``."""

    def __init__(self, make: Callable[[str], Kernel]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, dtype: np.dtype) -> Any:
        name = np.dtype(dtype).name
        if name not in COMPUTE:
            raise DTypeError(
                f"there is no kernel for arrays of {name}; convert to one of {', '.join(COMPUTE)}"
            )
        made = importlib.import_module(".program", __package__).Program(self.make(name))
        self[dtype] = made
        return made
