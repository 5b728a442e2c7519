"""The launcher: ``dtrun`` from the command line, ``launch`` from Python. Knows no tensors.

``launch`` is loaded when it is first asked for: ``dtrun --help`` needs none of what it needs, and
the command must set thread counts before numpy is loaded.
"""

import importlib
from typing import Any

__all__ = ["launch"]


def __getattr__(name: str) -> Any:
    if name == "launch":
        return importlib.import_module("disttrain_launcher.command.launch").launch
    raise AttributeError(f"module 'disttrain_launcher' has no attribute {name!r}")
