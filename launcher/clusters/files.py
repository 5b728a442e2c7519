"""Files of disttrain that need nothing else of it, found without the package around them, which
would load numpy: the number of its threads follows from the options."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType


def path_of(module: str) -> str:
    """Where ``module`` of disttrain is. Loads nothing."""
    top, *inner = module.split(".")
    found = importlib.util.find_spec(top)
    assert found is not None and found.submodule_search_locations
    return os.path.join(found.submodule_search_locations[0], *inner) + ".py"


def load(module: str) -> ModuleType:
    """``module`` by itself, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"{__package__}.alone.{module}", path_of(module))
    assert spec is not None and spec.loader is not None
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    return alone
