"""``distributed.rpc``: PyTorch's path to ``disttrain.rpc``."""

import sys
from typing import Any

from .. import rpc
from ..rpc import api, backend_registry, constants, functions, options

for _file in (api, backend_registry, constants, functions, options):  # the same by both paths
    sys.modules[f"{__name__}.{_file.__name__.rpartition('.')[2]}"] = _file


def __getattr__(name: str) -> Any:
    if name == "__path__":  # else each file would be there twice
        raise AttributeError(f"module {__name__!r} is no package")
    found = globals()[name] = getattr(rpc, name)
    return found


def __dir__() -> list[str]:
    return dir(rpc)
