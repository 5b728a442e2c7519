"""Datapipes of ``torch.utils.data``: datasets that are made of each other, with names of methods
for what makes them; and checks of their types, which are not made here."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ....data import Dataset, IterableDataset


class _Pipe:
    """``source.name(...)`` is the registered class of ``source``."""

    functions: dict[str, Callable]

    def __getattr__(self, name: str) -> Any:
        made = type(self).functions.get(name)
        if made is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(made, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable) -> None:
        """Give all pipes of this kind a method."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: type, enable_df_api_tracing: bool = False
    ) -> None:
        """The same of a class of pipes."""
        if function_name in cls.functions:
            raise RuntimeError(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.register_function(function_name, cls_to_register)


class IterDataPipe(_Pipe, IterableDataset):
    """A pipe that is passed through: ``__iter__``."""

    functions: dict[str, Callable] = {}

    def reset(self) -> None:
        """Begin anew."""


class DFIterDataPipe(IterDataPipe):
    """One of tables."""


class MapDataPipe(_Pipe, Dataset):
    """A pipe that is asked for samples: ``__getitem__``."""

    functions: dict[str, Callable] = {}


class DataChunk(list):
    """A batch, as a list."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The samples, in a line."""
        return f"{indent}[{', '.join(str(i) for i in self)}]"

    def raw_iterator(self) -> Iterator[Any]:
        """The samples."""
        yield from self.items


class functional_datapipe:  # noqa: N801  (the field's spelling)
    """For a class of pipes: a method of that name makes one of the pipe it is called of."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: Any) -> Any:
        kind: Any = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        kind.register_datapipe_as_function(self.name, cls)
        return cls


def _same(thing: Any) -> Any:
    """As it is: types are not checked."""
    return thing


class non_deterministic:  # noqa: N801  (the field's spelling)
    """A mark of pipes whose order may differ, with or without arguments."""

    def __new__(cls, arg: Any = None) -> Any:
        return arg if isinstance(arg, type) else _same


@contextlib.contextmanager
def _block(*args: object) -> Iterator[None]:
    yield


def names() -> dict[str, Any]:
    """What ``torch.utils.data`` gets from here."""
    kinds = (IterDataPipe, DFIterDataPipe, MapDataPipe, DataChunk, functional_datapipe)
    return {
        **{kind.__name__: kind for kind in kinds}, "non_deterministic": non_deterministic,
        "argument_validation": _same, "runtime_validation": _same,
        "runtime_validation_disabled": _block, "guaranteed_datapipes_determinism": _block,
    }  # fmt: skip
