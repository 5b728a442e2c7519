"""``distributed.autograd``: PyTorch's path to ``disttrain.rpc.autograd``."""

from typing import Any

from ..rpc import autograd


def __getattr__(name: str) -> Any:
    if name == "__path__":  # else each file would be there twice
        raise AttributeError(f"module {__name__!r} is no package")
    found = globals()[name] = getattr(autograd, name)
    return found


def __dir__() -> list[str]:
    return dir(autograd)
