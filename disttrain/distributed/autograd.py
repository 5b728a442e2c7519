"""``distributed.autograd``: PyTorch's path to ``disttrain.rpc.autograd``."""

from typing import Any

from ..rpc import autograd


def __getattr__(name: str) -> Any:
    found = globals()[name] = getattr(autograd, name)
    return found


def __dir__() -> list[str]:
    return dir(autograd)
