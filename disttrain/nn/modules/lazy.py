"""Modules that learn their sizes from their first input."""

from __future__ import annotations

from typing import Any

from ...errors import ModuleError
from ..module import Module
from ..parameter import is_lazy


class LazyMixin:
    """Stands before a module class whose parameters start uninitialised.

    At the first call ``initialize_parameters(*inputs)`` takes the sizes and gives parameters their
    shapes (unless a state dict has given them before); the object becomes a ``cls_to_become``.
    """

    cls_to_become: type[Module] | None = None  # None: the class stays

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}: initialize_parameters is missing")

    def has_uninitialized_params(self) -> bool:
        """Does a parameter or buffer of this module still wait for its shape?"""
        own = (*self._parameters.values(), *self._buffers.values())  # type: ignore[attr-defined]
        return any(is_lazy(t) for t in own)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "_sized" in self.__dict__:
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise ModuleError(
                f"{type(self).__name__}: its first forward has not given all parameters a shape"
            )
        if self.cls_to_become is None:
            self.__dict__["_sized"] = True
        else:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]
        return self(*args, **kwargs)
