"""``distributed.rpc``: PyTorch's path to ``disttrain.rpc``."""

from typing import Any

from .. import rpc


def __getattr__(name: str) -> Any:
    found = globals()[name] = getattr(rpc, name)
    return found


def __dir__() -> list[str]:
    return dir(rpc)
