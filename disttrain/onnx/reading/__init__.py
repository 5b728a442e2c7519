"""Models in ONNX's format as Modules."""

from typing import Any


def load(source: Any) -> Any:
    """The model of ``source``."""
    raise NotImplementedError
