"""What runs compute, as rows of hashes and statistics, and where two runs part.

    with dt.record("run-a"):
        train()

``dtrun --record run-b train.py`` does so for every rank; ``disttrain diff run-a run-b`` says which
operation differs first. Recording is a face over ``recording``; ``reader``, ``alignment`` and
``diff`` compare.

The package is callable, since ``dt.record`` is both the place of these names and the function.
"""

import sys
import types
from typing import Any

from .recording import begin
from .recording import record as _record


class _Callable(types.ModuleType):
    """A module that is called as its main function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _record(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

__all__ = ["begin"]
