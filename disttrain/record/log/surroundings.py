"""On what a rank ran: program, place, versions, code; and how that differs from what is here.

Of the environment only what launchers, this package and numerical libraries hear is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import site
import sys
import sysconfig
from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import context, settings
from ...backends import blas
from ...comm.job.worker_env import FAMILIES
from .frames import FORMAT

_OWN = "/disttrain/"
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_OURS = ("DISTTRAIN_", "TORCHELASTIC_", "OMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMBA_", "KMP_")
_NAMES = frozenset({
    "PYTHONHASHSEED", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "LANG", "LC_ALL", "TZ",
    *(name for family in FAMILIES.values() for name in family if name), *blas.VARIABLES,
})  # fmt: skip
_NOT = frozenset({
    settings.JOB_FD.name, settings.BLACKBOX_FD.name, settings.TOKEN_FILE.name,
    settings.RECORD_FOLDER.name, settings.ERROR_FILE.name, settings.BY_MPI.name,
})  # fmt: skip


def environment() -> dict[str, str]:
    """What of the environment a replay sets again."""
    told = settings.environment()
    kept = {
        name: value for name, value in told.items()
        if (name in _NAMES or name.startswith(_OURS)) and name not in _NOT
    }  # fmt: skip
    return kept | {n: str(v) for n, v in zip(_NUMBERS, context.current().numbers)}


def heard(name: str) -> bool:
    """Whether a replay sets this variable itself, or leaves it unset."""
    return name in _NAMES or name in _NOT or name.startswith(_OURS)


def process() -> dict[str, Any]:
    """What the calling process runs, and on what."""
    words, is_module, plain, face = program()
    me = context.current()
    return {
        "k": "process", "format": FORMAT, "words": words, "module": is_module, "plain": plain,
        "face": face, "cwd": _cwd(), "env": environment(), "numbers": list(me.numbers),
        "seed": me.slots.get(context.SEED_SLOT), "versions": versions(),
        "random": _random_state(), "numpy_random": _numpy_state(),
    }  # fmt: skip


def program() -> tuple[list[str], bool, bool, str]:
    """What this process runs: (words, is it a module, ...) as ``context.PROGRAM_SLOT`` has it."""
    told = context.current().slots.get(context.PROGRAM_SLOT)
    if told is not None:
        words, is_module, plain, face = told
        first = words[0] if is_module else os.path.abspath(words[0])
        return [first, *words[1:]], is_module, plain, face
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return [spec.name.removesuffix(".__main__"), *sys.argv[1:]], True, False, ""
    return [os.path.abspath(getattr(main, "__file__", "") or ""), *sys.argv[1:]], False, False, ""


def _cwd() -> str:
    with contextlib.suppress(FileNotFoundError):
        return os.getcwd()
    return ""


def versions() -> dict[str, str]:
    """What bits may depend on."""
    config: Any = np.show_config(mode="dicts")
    library = config.get("Build Dependencies", {}).get("blas", {})
    return {
        "disttrain": sys.modules["disttrain"].__version__,
        "python": ".".join(map(str, sys.version_info[:3])), "numpy": np.__version__,
        "blas": f"{library.get('name', '')} {library.get('version', '')}".strip(),
        "cpu": _cpu(), "threads": str(blas.num_threads()), "system": " ".join(os.uname()[0:3:2]),
        "hash seed": settings.HASH_SEED.text(),
    }  # fmt: skip


def _cpu() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return os.uname().machine


def _random_state() -> list:
    version, numbers, gauss = random.getstate()
    return [version, list(numbers), gauss]


def _numpy_state() -> list | None:
    if "numpy.random" not in sys.modules:
        return None
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return [name, [int(k) for k in keys], *rest]  # type: ignore[union-attr]


def seed_again(told: dict[str, Any]) -> None:
    """Let random numbers go on as those of the recorded process did."""
    slots = context.current().slots
    slots.pop(context.SEED_SLOT, None)
    if told["seed"] is not None:
        slots[context.SEED_SLOT] = told["seed"]
    version, numbers, gauss = told["random"]
    random.setstate((version, tuple(numbers), gauss))
    if told["numpy_random"] is not None:
        name, keys, *rest = told["numpy_random"]
        np.random.set_state((name, np.array(keys, np.uint32), *rest))  # noqa: NPY002


# --- code -----------------------------------------------------------------------------------------


def _elsewhere() -> tuple[str, ...]:
    """Folders of what is installed: known by its version."""
    found = {sysconfig.get_path(n) for n in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(os.path.realpath(p) + os.sep for p in found if p)


def code_files(modules: Iterable[str]) -> list[str]:
    """The source files of these modules that are not installed."""
    outside, found = _elsewhere(), []
    for name in modules:
        path = getattr(sys.modules.get(name), "__file__", None)
        if path and path.endswith(".py"):
            real = os.path.realpath(path)
            if not real.startswith(outside):
                found.append(real)
    return sorted({*found})


def hash_of_file(path: str) -> str:
    """Of its bytes; nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


# --- what differs ---------------------------------------------------------------------------------


def version_notes(told: dict[str, str], mine: dict[str, str]) -> list[str]:
    """What of the versions differs, a line each."""
    return [
        f"{name}: {told[name] or 'none'} when recorded, {mine.get(name) or 'none'} here"
        for name in told if told[name] != mine.get(name, "") and name != "system"
    ]  # fmt: skip


def code_notes(hashes: dict[str, str], found: dict[str, str]) -> list[str]:
    """Which files of the code differ. ``found``: where the recorded ones are here."""
    out, ours = [], 0
    for path, was in hashes.items():
        now = hash_of_file(found.get(path, path))
        if now == was:
            continue
        if _OWN in path:
            ours += 1
        else:
            out.append(f"{path} {'has changed' if now else 'is not here'}")
    files = f"{ours} file{'s' if ours > 1 else ''}"
    return [*out, f"disttrain has changed, in {files}"] if ours else out


__all__ = [
    "code_files", "code_notes", "environment", "hash_of_file", "heard", "process", "program",
    "seed_again",
    "version_notes", "versions",
]  # fmt: skip
