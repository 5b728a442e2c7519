"""CUDA C to machine code by NVRTC: needs neither a GPU nor a driver.

    code = compile_unit(text, "sm_90")
    code.image                        # a cubin, as the driver loads it
    code.functions["softmax_0"]       # registers, spills, shared memory

``cuda.bindings`` and NVRTC's library (the wheels ``cuda-bindings`` and ``nvidia-cuda-nvrtc``, or
``nvidia-cuda-nvrtc-cu12``, or a toolkit's) are loaded with the first program. What was compiled is
kept in files, as the processor's own kernels are.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import threading
from dataclasses import asdict, dataclass
from typing import Any

from .. import cache

# No product and sum are contracted that the expression does not join by ``fma``: the same digits as
# on other processors. Functions that a program does not call are no mistake.
OPTIONS = ("--std=c++17", "--fmad=false", "--diag-suppress=177", "--ptxas-options=-v")
_lock = threading.Lock()


class Unavailable(Exception):
    """NVRTC cannot be used here; the text says why."""


class CompileError(Exception):
    """NVRTC refused a program; the text has its messages, and the lines that these are about."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one function takes of a multiprocessor. ``stack``: bytes of local memory of each thread;
    ``spills``: bytes of registers that are written to it; ``shared``: bytes of a block."""

    registers: int
    stack: int
    spills: int
    shared: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """``image``: a cubin, or PTX where it is for a virtual architecture (then nothing is known of
    registers)."""

    image: bytes
    functions: dict[str, Resources]


def why_unavailable() -> str:
    """Why nothing can be compiled here; empty where it can."""
    try:
        version()
    except Unavailable as e:
        return str(e)
    return ""


def version() -> tuple[int, int]:
    """NVRTC's version. Raises ``Unavailable`` where there is none."""
    return tuple(_call(_nvrtc(), "nvrtcVersion"))


def architectures() -> list[int]:
    """What NVRTC knows, as 90 for sm_90."""
    nvrtc = _nvrtc()
    return sorted(int(a) for a in _call(nvrtc, "nvrtcGetSupportedArchs")[0])


def target(capability: tuple[int, int]) -> str:
    """The architecture to compile for, for a device of that compute capability: its own, or PTX of
    the newest one below it, which the driver compiles."""
    wanted, known = capability[0] * 10 + capability[1], architectures()
    if wanted in known:
        return f"sm_{wanted}"
    below = [a for a in known if a < wanted]
    if not below:
        raise Unavailable(
            f"NVRTC {'.'.join(map(str, version()))} knows compute capabilities from {known[0]} on, "
            f"the device has {wanted}; install an older NVRTC (nvidia-cuda-nvrtc-cu12)"
        )
    return f"compute_{below[-1]}"


def compile_unit(text: str, arch: str, name: str = "kernels.cu") -> Compiled:
    """``text`` for ``arch``: ``sm_90`` for machine code, ``compute_90`` for PTX. Takes some 100 ms
    per function; what was compiled before comes from the cache.

    Raises ``Unavailable`` without NVRTC and ``CompileError`` where it refuses the text."""
    nvrtc = _nvrtc()
    options = (f"--gpu-architecture={arch}", *OPTIONS)
    key = hashlib.sha256(repr((text, options, version())).encode()).hexdigest()
    folder = cache.directory()
    kept = cache.read(folder, key)
    if kept is not None:
        head, image = kept.split(b"\n", 1)
        return Compiled(image, {n: Resources(**r) for n, r in json.loads(head).items()})
    image, log = _compile(nvrtc, text, options, name)
    made = Compiled(image, parse_log(log))
    head = json.dumps({n: asdict(r) for n, r in made.functions.items()}).encode()
    cache.write(folder, key, head + b"\n" + image)
    return made


def parse_log(log: str) -> dict[str, Resources]:
    """What the assembler says of each function."""
    found, name, numbers = {}, "", (0, 0)
    for line in log.splitlines():
        if named := re.search(r"Function properties for (\w+)", line):
            name, numbers = named[1], (0, 0)
        elif frame := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line):
            numbers = int(frame[1]), int(frame[2])
        elif used := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            size = int(shared[1]) if shared else 0
            found[name] = Resources(int(used[1]), numbers[0], numbers[1], size)
    return found


def explain(log: str, text: str, name: str) -> str:
    """``log``, with the line of ``text`` that each message is about."""
    lines, out = text.splitlines(), []
    for line in log.splitlines():
        out.append(line)
        at = re.match(re.escape(name) + r"\((\d+)\): .*error", line)
        if at and int(at[1]) <= len(lines):
            around = range(max(int(at[1]) - 3, 0), min(int(at[1]) + 1, len(lines)))
            out += [f"  {k + 1:5}  {lines[k]}" for k in around]
    return "\n".join(out)


def _compile(nvrtc: Any, text: str, options: tuple[str, ...], name: str) -> tuple[bytes, str]:
    (program,) = _call(nvrtc, "nvrtcCreateProgram", text.encode(), name.encode(), 0, [], [])
    try:
        given = [o.encode() for o in options]
        status = nvrtc.nvrtcCompileProgram(program, len(given), given)[0]
        log = _text(nvrtc, program, "nvrtcGetProgramLog").rstrip(b"\0").decode("utf-8", "replace")
        if int(status) != 0:
            raise CompileError(f"NVRTC: {status.name}\n{explain(log, text, name)}")
        kind = "PTX" if "compute_" in options[0] else "CUBIN"
        return _text(nvrtc, program, f"nvrtcGet{kind}"), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(nvrtc: object, program: object, what: str) -> bytes:
    """What NVRTC writes into memory of a size that it tells."""
    (size,) = _call(nvrtc, f"{what}Size", program)
    out = bytes(size)  # the binding writes into it
    _call(nvrtc, what, program, out)
    return out


def _call(nvrtc: object, what: str, *args: object) -> tuple:
    try:
        status, *results = getattr(nvrtc, what)(*args)
    except Exception as e:  # the binding's way to say that it finds no library, in several versions
        raise Unavailable(
            f"NVRTC's library cannot be used ({type(e).__name__}: {str(e).splitlines()[0]}); "
            "pip install nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12"
        ) from None
    if int(status) != 0:
        raise CompileError(f"{what}: {status.name}")
    return tuple(results)


def _nvrtc() -> Any:
    with _lock:
        try:
            return importlib.import_module("cuda.bindings.nvrtc")
        except ImportError as e:
            raise Unavailable(
                f"cuda-bindings is not installed ({e}); pip install cuda-bindings"
            ) from None
