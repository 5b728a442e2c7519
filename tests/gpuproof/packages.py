"""The packages that the proof needs, and those that are missing, put into a folder of their own."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

SECONDS = 120.0
# Module, and the distribution that has it: {} is the major version of CUDA.
NEEDED = {
    "numpy": "numpy",
    "ml_dtypes": "ml-dtypes",
    "llvmlite": "llvmlite",
    "tqdm": "tqdm",
    "packaging": "packaging",
    "pytest": "pytest",
    "iniconfig": "iniconfig",
    "pluggy": "pluggy",
    "pygments": "pygments",
    "cupy": "cupy-cuda{}x",
    "cuda.pathfinder": "cuda-pathfinder",
    "cuda.bindings": "cuda-bindings",
    "cuda.core": "cuda-core",
    "nccl.core": "nccl4py",
}
LIBRARIES = ("nvidia-nccl-cu{}",)  # no module: asked for by distribution


def missing(major: int) -> list[str]:
    """Distributions that are needed with CUDA ``major`` and are not here."""
    names = [dist.format(major) for module, dist in NEEDED.items() if not _has(module)]
    for name in (n.format(major) for n in LIBRARIES):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            names.append(name)
    return names


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def install(names: Sequence[str], wheels: Path, target: Path) -> dict[str, str]:
    """Put wheels of ``wheels`` that fit this Python into ``target``, each by itself; what pip says
    where there is none. No network is used."""
    problems, there = {}, [re.sub(r"[-_.]+", "-", p.name).lower() for p in wheels.glob("*.whl")]
    for name in names:
        if not any(file.startswith(f"{name}-") for file in there):
            problems[name] = f"no wheel of it in {wheels}"
            continue
        command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet"]
        command += ["--find-links", str(wheels), "--target", str(target), "--upgrade", name]
        env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env)
        except subprocess.TimeoutExpired:
            problems[name] = f"pip took longer than {SECONDS:.0f} s"
            continue
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            problems[name] = said[-1][7:] if said else f"pip ended with code {done.returncode}"
    return problems


def versions(names: Iterable[str]) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
