"""Paths that lead to modules that are elsewhere, lead to those, not to second copies of them."""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path

import pytest

import disttrain

ROOT = Path(disttrain.__file__).parent
_ALL = (".".join(file.parent.relative_to(ROOT.parent).parts) for file in ROOT.rglob("__init__.py"))
PACKAGES = sorted(name for name in _ALL if name != "disttrain.compat.keras")
FACES = {
    "disttrain.distributed.autograd": "disttrain.rpc.autograd",
    "disttrain.distributed.optim.optimizer": "disttrain.rpc.optim.optimizer",
    "disttrain.distributed.rpc": "disttrain.rpc",
    **{
        f"disttrain.distributed.rpc.{name}": f"disttrain.rpc.{name}"
        for name in ("api", "backend_registry", "constants", "functions", "options")
    },
}


def _modules() -> list[str]:
    """Every module whose import asks for nothing that may be lacking."""
    inside = [f"{package}." for package in PACKAGES]
    return sorted(
        found.name
        for prefix in inside
        for found in pkgutil.iter_modules([str(ROOT.parent / prefix.replace(".", "/"))], prefix)
        if not found.name.endswith("__main__")
        and ".entry." not in found.name
        and ".compat.keras" not in found.name  # which publishes names of its own when imported
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_below_two_names(package):
    """Who is a package by another one's ``__path__``, loads that one's files once more."""
    for name in [n for n in _modules() if n.rpartition(".")[0] == package]:
        module = importlib.import_module(name)
        for folder in getattr(module, "__path__", ()):
            assert os.path.samefile(folder, ROOT.parent / name.replace(".", "/")), name


@pytest.mark.parametrize("face", FACES)
def test_a_face_gives_the_same_things(face):
    shown, home = importlib.import_module(face), importlib.import_module(FACES[face])
    names = getattr(shown, "__all__", [n for n in dir(home) if not n.startswith("_")])
    assert names and all(getattr(shown, n) is getattr(home, n) for n in names)
