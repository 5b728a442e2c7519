"""``torch.hub`` and ``torch.utils.model_zoo``: weights by address, kept on disk; models of a
folder on this machine that has a ``hubconf.py``."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import types
import urllib.request
from typing import Any
from urllib.parse import urlparse

from ... import errors
from ...settings import CACHES, TORCH_HOME
from ..publish import Shim
from .saving import load as read

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_chosen: list[str] = []  # by set_dir


def get_dir() -> str:
    """Where files are kept: what ``set_dir`` said, or ``$TORCH_HOME/hub``, or in the cache."""
    if _chosen:
        return _chosen[-1]
    cache = CACHES.text() or os.path.join("~", ".cache")
    return os.path.join(os.path.expanduser(TORCH_HOME.text() or f"{cache}/torch"), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep files there."""
    _chosen[:] = [os.path.expanduser(d)]


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Write what is at ``url`` to a file, which appears when all of it is there. ``hash_prefix``:
    with what its SHA-256 must begin."""
    target = os.path.expanduser(dst)
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    handle, part = tempfile.mkstemp(dir=os.path.dirname(target) or ".", suffix=".partial")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(request) as source:
            while block := source.read(1 << 17):
                out.write(block)
                digest.update(block)
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(
                f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")'
            )
        shutil.move(part, target)
    finally:
        if os.path.exists(part):
            os.remove(part)


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = False,
) -> Any:  # fmt: skip
    """What is in the file at ``url``, which is fetched once and kept in ``model_dir``
    (``get_dir()/checkpoints``)."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    kept = os.path.join(folder, name)
    if not os.path.exists(kept):
        found = HASH_REGEX.search(name) if check_hash else None
        sys.stderr.write(f'Downloading: "{url}" to {kept}\n')
        download_url_to_file(url, kept, found.group(1) if found else None, progress)
    return read(kept, map_location, weights_only=weights_only)


def _entries(repo_or_dir: str, source: str) -> types.ModuleType:
    if source != "local":
        raise errors.ConfigError(
            f"torch.hub: source={source!r} given; needed 'local', with the folder of a hubconf.py: "
            "nothing is fetched and run from elsewhere"
        )
    path = os.path.join(os.path.expanduser(repo_or_dir), "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        raise FileNotFoundError(f"torch.hub: there is no {path}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(path))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(os.path.dirname(path))
    return module


def _entry(module: types.ModuleType, model: str) -> Any:
    found = getattr(module, model, None)
    if not callable(found) or model.startswith("_"):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


def _list(github: str, force_reload: bool = False, source: str = "github", **how: Any) -> list:
    """The names of a hubconf.py."""
    names = vars(_entries(github, source)).items()
    return [n for n, v in names if callable(v) and not n.startswith("_")]


def _help(github: str, model: str, force_reload: bool = False, source: str = "github",
          **how: Any) -> Any:  # fmt: skip
    """What a hubconf.py says of a name."""
    return _entry(_entries(github, source), model).__doc__


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """What a function of a folder's ``hubconf.py`` gives."""
    for word in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(word, None)
    return _entry(_entries(repo_or_dir, source), model)(*args, **kwargs)


def modules() -> dict[str, Shim]:
    """By name."""
    functions = (get_dir, set_dir, download_url_to_file, load_state_dict_from_url, load)
    hub = Shim("torch.hub").give(
        **{f.__name__: f for f in functions}, list=_list, help=_help, HASH_REGEX=HASH_REGEX,
        urlparse=urlparse,
    )  # fmt: skip
    zoo = Shim("torch.utils.model_zoo").give(load_url=load_state_dict_from_url)
    return {"torch.hub": hub, "torch.utils.model_zoo": zoo}
