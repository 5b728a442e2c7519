"""Every public name says what it is in words of its own: ``help()`` of it is of use."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from disttrain import Tensor

MODULES = """
disttrain amp autograd compile cuda data distributed distributions drawing func futures linalg
metrics nn optim profiler serialize sparse special testing nn.functional nn.init nn.utils
optim.lr_scheduler distributed.fsdp
distributed.rpc distributed.checkpoint distributed.tensor distributed.pipelining distributed.optim
distributed.elastic distributed.autograd distributed.invariant distributed.planning
""".split()


def own_text(thing: Any) -> str | None:
    """Not the one of its class."""
    if inspect.isfunction(thing) or inspect.isbuiltin(thing):
        return thing.__doc__
    return getattr(thing, "__dict__", {}).get("__doc__")


def public(module: Any) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]:
        thing = getattr(module, name, None)
        ours = getattr(thing, "__module__", None) or ""
        if callable(thing) and not inspect.ismodule(thing) and ours.split(".")[0] == "disttrain":
            yield name, thing


@pytest.mark.parametrize("name", MODULES)
def test_names_of_a_module(name: str) -> None:
    module = importlib.import_module(name if name == "disttrain" else f"disttrain.{name}")
    assert [n for n, thing in public(module) if not own_text(thing)] == []


def test_methods_of_a_tensor() -> None:
    found = ((n, inspect.getattr_static(Tensor, n)) for n in dir(Tensor) if n[0] != "_")
    assert [n for n, thing in found if not thing.__doc__] == []
