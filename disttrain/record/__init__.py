"""What runs compute, as rows of hashes and statistics, and where two runs part.

    with dt.record("run-a"):
        train()

``dtrun --record run-b train.py`` does so for every rank; ``disttrain diff run-a run-b`` says which
operation differs first. ``recording`` makes them, ``reader``, ``alignment`` and ``diff`` compare;
the one is loaded only where it is asked for, since the other needs no tensors.

The package is callable, since ``dt.record`` is both the place of these names and the function.
"""

import importlib
import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    """A module that is called as its main function."""

    @property
    def _record(self) -> Any:
        return importlib.import_module(".recording", __name__).record

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._record(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable


def begin() -> None:
    """Record this rank from now on to its end, where the settings say so (``dtrun --record``)."""
    importlib.import_module(".recording", __name__).begin()


__all__ = ["begin"]
