"""``load``: a model of another program as a Module."""

from __future__ import annotations

from typing import Any

from .building import build
from .files import decoded
from .graph import Limits
from .module import OnnxModule


def load(source: Any, *, limits: Limits | None = None) -> OnnxModule:
    """The model of ``source`` (a path, bytes, an open file or a ``ModelProto``) as a Module.

    Floating initializers are its parameters, other ones and running averages its buffers, by their
    names. It computes what the model says for inference, is differentiable, and can be trained,
    compiled and exported like any module. Numbers in files beside the model are found in its folder
    only. ``limits``: what a file may ask for. Raises ``SerializationError`` for what is damaged,
    ``OperatorError`` for an operator that nothing here computes, each with the node's name.
    """
    limits = limits or Limits()
    model, name = decoded(source, limits)
    return OnnxModule(build(model, limits, name), name)
