"""What bears on GPUs, as plain data: the driver, its files, packages, and what these answer.

``gather`` asks; ``gpu.judge`` says what it means. Foreign libraries are loaded in child processes.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import gpus, settings
from .finding import child

# What is asked of foreign libraries: programs that print one line of JSON.
_DRIVER = """
import ctypes as c, json
lib = c.CDLL("libcuda.so.1")
code, version, count = lib.cuInit(0), c.c_int(), c.c_int()
lib.cuDriverGetVersion(c.byref(version))
lib.cuDeviceGetCount(c.byref(count))
print(json.dumps({"code": code, "cuda": version.value, "count": count.value}))
"""
_CUPY = """
import json, cupy
from cupy.cuda import runtime
said = {"version": cupy.__version__}
try:
    said["runtime"] = runtime.runtimeGetVersion()
    said["devices"] = runtime.getDeviceCount()
    (cupy.arange(4) @ cupy.arange(4)).item()
except Exception as error:
    said["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
print(json.dumps(said))
"""
_NCCL = """
import json
from nccl.core import get_version
found = get_version()
lib = found.libnccl
said = {"version": str(found.nccl4py)}
if lib is not None:
    said |= {"nccl": str(lib.version), "path": str(lib.path)}
print(json.dumps(said))
"""
_NVRTC = """
import json
from cuda.bindings import nvrtc
code, major, minor = nvrtc.nvrtcVersion()
print(json.dumps({"version": f"{major}.{minor}"}))
"""

_PACKAGES = re.compile(
    r"(cupy(-.*)?|nccl4py|cuda-bindings|cuda-core|cuda-toolkit|nvidia-nccl-cu\d+|"
    r"nvidia-cuda-nvrtc(-cu\d+)?|nvidia-cublas(-cu\d+)?)"
)
# Libraries of which the one on LD_LIBRARY_PATH would be taken in place of a package's.
_BEFORE = re.compile(r"lib(cuda|nccl|nvrtc|cublas|cublasLt|cudart)\.so(\.\d+)*")


@dataclass(frozen=True)
class Facts:
    """``nodes``: paths of the driver's devices in /dev, and whether they may be opened.
    ``hardware``: NVIDIA's display or 3D controllers on the PCI bus. ``module``: the kernel's driver
    is loaded. ``before``: libraries on LD_LIBRARY_PATH that hide others. Answers of libraries are
    dicts; where one failed it has "error" only."""

    machine: gpus.Machine
    nodes: dict[str, bool] = field(default_factory=dict)
    hardware: tuple[str, ...] = ()
    module: bool = False
    container: bool = False
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    before: tuple[str, ...] = ()
    packages: dict[str, str] = field(default_factory=dict)
    driver: dict[str, Any] = field(default_factory=dict)
    cupy: dict[str, Any] = field(default_factory=dict)
    nccl: dict[str, Any] = field(default_factory=dict)
    nvrtc: dict[str, Any] = field(default_factory=dict)


def gather(root: str = "/") -> Facts:
    """The facts of this machine; files are read below ``root``."""
    packages = installed()
    cupy = any(name == "cupy" or name.startswith("cupy-") for name in packages)
    return Facts(
        machine=gpus.ask(),
        nodes=_nodes(Path(root)),
        hardware=_hardware(Path(root)),
        module=Path(root, "proc/driver/nvidia/version").exists(),
        container=any(Path(root, p).exists() for p in (".dockerenv", "run/.containerenv")),
        visible=settings.VISIBLE_DEVICES.said(),
        before=_before(settings.LIBRARIES.text()),
        packages=packages,
        driver=_answer(_DRIVER),
        cupy=_answer(_CUPY) if cupy else {},
        nccl=_answer(_NCCL) if "nccl4py" in packages else {},
        nvrtc=_answer(_NVRTC) if "cuda-bindings" in packages else {},
    )


def installed() -> dict[str, str]:
    """Versions of the packages that matter here, by their normalized names."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
        if _PACKAGES.fullmatch(name):
            found.setdefault(name, one.version)
    return dict(sorted(found.items()))


def _answer(program: str) -> dict[str, Any]:
    said = child(program)
    try:
        answer = json.loads(said)
    except ValueError:
        return {"error": said or "no answer"}
    return answer if isinstance(answer, dict) else {"error": said}


def _nodes(root: Path) -> dict[str, bool]:
    names = [p for p in root.glob("dev/nvidia*") if not p.is_dir()]
    wanted = [p for p in names if re.fullmatch(r"nvidia(\d+|ctl|-uvm)", p.name)]
    return {f"/dev/{p.name}": os.access(p, os.R_OK | os.W_OK) for p in sorted(wanted)}


def _hardware(root: Path) -> tuple[str, ...]:
    found = []
    for folder in sorted(root.glob("sys/bus/pci/devices/*")):
        try:
            kind = (folder / "class").read_text()[:4], (folder / "vendor").read_text().strip()
        except OSError:
            continue
        if kind == ("0x03", "0x10de"):
            found.append(folder.name)
    return tuple(found)


def _before(path: str) -> tuple[str, ...]:
    found = []
    for folder in filter(None, path.split(":")):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        found += [os.path.join(folder, name) for name in names if _BEFORE.fullmatch(name)]
    return tuple(found)
