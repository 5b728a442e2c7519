"""Modules that stand under another library's names: how they are published, and what they say of
names that they lack. Knows the import system, and no face's names."""

from __future__ import annotations

import difflib
import os
import sys
import types
from collections.abc import Callable, Iterable
from functools import partial
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from importlib.util import spec_from_file_location
from typing import Any

from ..errors import ConfigError, DisttrainError


class MissingName(DisttrainError, AttributeError):
    """A program named something that this stand-in lacks."""


class MissingModule(DisttrainError, ModuleNotFoundError):
    """A program imports a module, or a name from one, that this stand-in lacks."""


class _Itself(Loader):
    """Loads a module that is there already, for whoever finds it by its ``__spec__``."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        """It has its names."""


class Shim(types.ModuleType):
    """A module made of other modules' public names; what it lacks it says plainly."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"disttrain under the name {name}")
        self.__path__: list[str] = []
        self.__file__ = __file__
        self.__spec__ = ModuleSpec(name, _Itself(self), origin=__file__, is_package=True)

    def __getattr__(self, name: str) -> Any:
        fill = self.__dict__.pop("_fill", None)
        if fill is not None:
            fill(self)
            return getattr(self, name)
        if name.startswith("__"):  # asked for by the import system and by inspection
            raise AttributeError(f"{self.__name__}.{name}")
        raise MissingName(lacking(f"{self.__name__}.{name}", self))

    def __dir__(self) -> list[str]:
        getattr(self, "__all__", None)
        return sorted(self.__dict__)

    def later(self, fill: Callable[[Shim], object]) -> Shim:
        """Take the names when the first of them is asked for: ``fill(self)`` sets them. So that a
        program loads no package that it does not use."""
        self.__dict__["_fill"] = fill
        return self

    def take(self, source: object, names: Iterable[str] | None = None) -> Shim:
        """Copy names (None: all public ones that are the project's) from a module."""
        for n in public(source) if names is None else names:
            setattr(self, n, getattr(source, n))
        return self

    def give(self, **values: object) -> Shim:
        """Set names."""
        for n, value in values.items():
            setattr(self, n, value)
        return self


class Absent(Shim):
    """A module whose names this version lacks: it says why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name)
        self.__dict__["_why"] = why

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingName(f"{self.__name__}.{name}: {self.__dict__['_why']}")


def absent(why: str) -> type:
    """A class of which no value is one, and none can be made."""

    class Lacking:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise MissingName(why)

        def __class_getitem__(cls, item: Any) -> Any:
            return cls

    return Lacking


def assembled(root: str, tables: dict[str, dict[str, Any]], *more: Shim) -> dict[str, Shim]:
    """The modules of a library, parents before children, each with what it has by ``tables`` ("":
    the library itself), and with its own parts, where it has no other name like theirs."""
    made = [Shim(f"{root}.{word}" if word else root).give(**t) for word, t in tables.items()]
    modules = {m.__name__: m for m in (*made, *more)}
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent:
            vars(modules[parent]).setdefault(child, module)
    return modules


def public(source: object, late: bool = False) -> list[str]:
    """What a module offers: its ``__all__``, or else all that is ours and no module. ``late``: also
    what it loads when it is first asked for, and errors, so far as no other module has them."""
    found = dir(source) if late else vars(source)
    names = getattr(source, "__all__", [n for n in found if not n.startswith("_")])
    if late:
        return [n for n in names if _ours(getattr(source, n)) or _own_error(getattr(source, n))]
    return [n for n in names if _ours(getattr(source, n))]


def _own_error(value: object) -> bool:
    found = isinstance(value, type) and issubclass(value, BaseException)
    return found and value.__module__.startswith("disttrain.distributed.")


def _ours(value: object) -> bool:
    if isinstance(value, types.ModuleType):
        return False
    if isinstance(value, type) and issubclass(value, BaseException):
        return False
    return str(getattr(value, "__module__", "")).startswith(__name__.partition(".")[0])


def lacking(full: str, parent: object) -> str:
    """What to tell somebody who named ``full``, which ``parent`` lacks."""
    last = full.rpartition(".")[2]
    near = difflib.get_close_matches(last, vars(parent), n=3, cutoff=0.75)
    root = full.partition(".")[0]
    where = getattr(parent, "__name__", root)
    there = f"near it: {', '.join(near)}" if near else f"dir({where}) lists what there is"
    lacks = f"{full} is not part of disttrain's stand-in for {root} in this version"
    advice = f"Use another function, or run the program with the real {root}"
    return f"{lacks} ({there}). {advice}"


def mirror(
    root: str, words: Iterable[str], load: Callable[[], Any],
    shown: Callable[[str, str, Any], Any] = lambda word, name, value: value,
) -> dict[str, Shim]:  # fmt: skip
    """Modules under the name ``root`` with what a package has, which ``load()`` gives, and its
    parts ``words``: filled when the first name of them is asked for. ``shown(word, name, value)``:
    what stands there for a value."""

    def fill(shim: Shim, word: str) -> None:
        real = load()
        for part in filter(None, word.split(".")):
            real = getattr(real, part)
        for name in dir(real):
            if not name.startswith("__") and not isinstance(vars(shim).get(name), Shim):
                shim.give(**{name: shown(word, name, getattr(real, name, None))})

    found = {word: Shim(f"{root}.{word}" if word else root) for word in ("", *words)}
    return {m.__name__: m.later(partial(fill, word=word)) for word, m in found.items()}


def replace(package: str, old: object, new: object) -> None:
    """Put ``new`` in the place of ``old`` wherever a loaded module of ``package`` names it."""
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith(f"{package}."):
            for word in [w for w, value in vars(module).items() if value is old]:
                setattr(module, word, new)


def missing(module: Shim) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that offers what ``module`` has: it says what is lacking."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingName(lacking(f"{module.__name__}.{name}", module))

    return __getattr__


class Told(Distribution):
    """The distribution that the stand-in is taken for: a name and a version, and no files."""

    def __init__(self, name: str, version: str) -> None:
        self._name, self._version = name, version

    def read_text(self, filename: str) -> str | None:
        """Its metadata."""
        said = f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {self._version}\n"
        return said if filename in ("METADATA", "PKG-INFO") else None

    def locate_file(self, path: Any) -> Any:
        """Where its files would be."""
        return os.path.join(os.path.dirname(__file__), path)


class Finder:
    """Finds the modules of the stand-in that can be run, and says plainly what does not exist.

    ``root``: the library. ``runnable``: module name -> file. ``version``: of the distribution that
    libraries ask the import system for (``importlib.metadata.version``). Also asked for ``from
    torch import name`` when ``torch`` lacks ``name``; the error carries no module name, so the
    import statement passes it on.
    """

    def __init__(self, root: str, runnable: dict[str, str], version: str | None = None) -> None:
        self.root, self.runnable, self.version = root, runnable, version

    def find_distributions(self, context: DistributionFinder.Context) -> Iterable[Distribution]:
        """What is told of the stand-in as an installed distribution."""
        if self.version is not None and context.name in (None, self.root):
            yield Told(self.root, self.version)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] != self.root:
            return None
        parent, _, _ = name.rpartition(".")
        if name in self.runnable:
            return spec_from_file_location(name, self.runnable[name])
        if not isinstance(sys.modules.get(parent), Shim):
            return None
        raise MissingModule(lacking(name, sys.modules[parent]))


def refuse_real(root: str, face: str) -> bool:
    """Whether the stand-in for ``root`` is published already; an error where the real one is
    imported. ``face``: the module that publishes it."""
    present = sys.modules.get(root)
    if present is not None and not isinstance(present, Shim):
        raise ConfigError(
            f"{face}.install: the real {root} is imported already (from "
            f"{getattr(present, '__file__', '?')}); call install() before anything imports it, or "
            f"start the program with python -m disttrain.{face}"
        )
    return present is not None


def publish(modules: dict[str, Shim], runnable: dict[str, str], version: str | None = None) -> None:
    """Put the modules, the first of which is the library's own, into ``sys.modules``, each also as
    an attribute of its parent."""
    for name, module in modules.items():
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:  # past __setattr__, by which some modules load what they stand for
            vars(modules[parent]).setdefault(child, module)
        if name in runnable:
            module.__spec__ = spec_from_file_location(name, runnable[name])
    sys.meta_path.insert(0, Finder(next(iter(modules)), runnable, version))
