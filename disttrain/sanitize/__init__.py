"""Silent bugs of training programs, made loud: each is told once, with file and line.

    dt.sanitize()                       # from here to the end of the program
    with dt.sanitize(raise_on="error"): # or for a block
        train()

``dtrun --sanitize train.py`` does so for every rank. ``table`` says what is looked for,
``watching`` is where programs are looked at, ``session`` what a rank is known to have done, and
each other file has checks of one subject.

The package is callable, since ``dt.sanitize`` is both the place of these names and the function.
"""

import importlib
import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    """A module that is called as its main function."""

    @property
    def _sanitize(self) -> Any:
        return importlib.import_module(".sanitizing", __name__).sanitize

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._sanitize(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _LATER:
            return getattr(importlib.import_module(".sanitizing", __name__), name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


_LATER = ("Finding", "SanitizeError", "findings", "ignore")
sys.modules[__name__].__class__ = _Callable


def begin() -> None:
    """Sanitize this rank from now on to its end, where settings say so (``dtrun --sanitize``)."""
    importlib.import_module(".sanitizing", __name__).begin()


__all__ = ["begin"]
