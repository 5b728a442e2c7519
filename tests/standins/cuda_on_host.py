"""Generated CUDA C run by a host compiler: the same text, the same plans, the same bytes of
arguments, with ``cuda_on_host.cpp`` in place of a GPU. Only the functions of the C library and the
order in which blocks run are others."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np

from disttrain.backends.cuda.codegen.emit import function, symbol, unit
from disttrain.backends.cuda.plan import Operand, make_plan, pack, plan_many
from disttrain.backends.device.structs import packed
from disttrain.backends.lang.kernel import Array

COMPILER = shutil.which("g++") or shutil.which("clang++")
SHIM = Path(__file__).with_suffix(".cpp")
FLAGS = "-std=c++17 -O0 -w -shared -fPIC -ffp-contract=off -fno-strict-aliasing".split()


class Case:
    """A kernel with arguments for all its parameters; ``sets``: several, for one launch."""

    def __init__(self, kernel, *args, sets=None):
        self.kernel = kernel
        self.sets = sets or [args]
        self.given = [
            [a for p, a in zip(kernel.params, one) if isinstance(p, Array)] for one in self.sets
        ]
        self.scalars = [a for p, a in zip(kernel.params, self.sets[0]) if not isinstance(p, Array)]
        operands = [[Operand.of(a) for a in one] for one in self.given]
        self.plan = plan_many(kernel, operands) if sets else make_plan(kernel, operands[0])

    def functions(self):
        for launch in self.plan.launches:
            text, _ = function(self.kernel, launch.form, self.name(launch))
            yield self.name(launch), text

    def name(self, launch):
        own = hashlib.sha256(str(self.kernel).encode()).hexdigest()[:8]
        return f"{symbol(self.kernel, launch.form)}_{own}"


class CodeCase:
    """A hand-written code (``backends/device/codes.py``) with all its arguments."""

    def __init__(self, code, *args):
        self.code, self.args = code, args
        given, self.numbers = code.split(args)
        self.plan = code.plan([Operand.of(a) for a in given])
        self.given = [given]

    def functions(self):
        for step in self.plan.launches:
            yield step.name, step.text()

    def name(self, step):
        return step.name


def compiled(cases, folder):
    """A library with the functions of all ``cases``."""
    found = [pair for case in cases for pair in case.functions()]
    codes = [case for case in cases if isinstance(case, CodeCase)]
    helpers = dict.fromkeys(h for c in codes for step in c.plan.launches for h in step.helpers)
    texts = dict(found)
    parts = [unit([], SHIM.read_text()), *helpers, *texts.values()]
    for name, text in texts.items():
        words = ("__sync", "dt_warp", "dt_leave", "dt_team", "dt_mma")
        meets = str(any(word in text for word in words)).lower()
        parts.append(
            f"static void call_{name}(const void* a) {{ {name}(*(const {name}_args*)a); }}\n"
            f'extern "C" void run_{name}(const void* a, unsigned grid, unsigned block) '
            f"{{ launch(call_{name}, a, grid, block, {meets}); }}"
        )
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text("\n".join(parts))
    done = subprocess.run(
        [COMPILER, *FLAGS, "-o", str(library), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def run(library, case):
    """Perform the plan of ``case`` on its arrays."""
    scratch = np.full(case.plan.scratch + 256, 0xFF, np.uint8)  # nan, wherever it is read too early
    address = -(-scratch.ctypes.data // 256) * 256
    pointers = [a.__array_interface__["data"][0] for one in case.given for a in one]
    for launch in case.plan.launches:
        if isinstance(case, CodeCase):
            data = packed(launch.fields, launch.values, pointers, case.numbers, address)
        else:
            data = pack(case.kernel, launch, pointers, case.scalars, address)
        getattr(library, f"run_{case.name(launch)}")(
            ctypes.create_string_buffer(data, len(data)), launch.grid, launch.block
        )
