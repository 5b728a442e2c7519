"""Models in ONNX's format as Modules.

``files`` decodes and doubts a file, ``building`` makes a ``graph`` of the message by the ``table``
of ``operators``, ``running`` runs it with values; ``numbers`` computes on sizes. ``module`` is what
a program gets.
"""

from .loading import load
from .module import OnnxModule

__all__ = ["OnnxModule", "load"]
