"""A driver of CUDA without a GPU: the calls of ``cuda.bindings.driver`` that launching makes.

"Loads" CUDA C as text and "launches" it on memory of the host. As on a device, nothing has run when
a launch returns: ``synchronize`` compiles all that was launched by one run of a host compiler, and
runs it in order. Structs of arguments are copied at the launch, as the real driver does; scratch
memory is kept until then, as that of a stream."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from standins.cuda_on_host import COMPILER, FLAGS, SHIM

from disttrain.backends.cuda.codegen.prelude import NATIVE

_SIZES = {"dt_u64": 8, "dt_i64": 8, "double": 8, "int": 4, "unsigned": 4, "float": 4}
_MEETS = ("__sync", "dt_warp", "dt_leave", "dt_team", "dt_mma")


class Status(int):
    """An error code, as the binding's enumeration has them."""


def text_as_image(text, arch, name):
    """In NVRTC's place: the text itself is what is loaded."""
    assert re.fullmatch(r"(sm|compute)_\d+", arch), arch
    return SimpleNamespace(image=text.encode())


def size_of(text, name):
    """Bytes of the struct that function ``name`` takes, as a C compiler lays it out."""
    body = re.search(rf"struct {name}_args {{\n(.*?)\n}};", text, re.S)[1]
    end, widest = 0, 1
    for kind, _, count in re.findall(r"^  ([\w ]+?) (\w+)(?:\[(\d+)\])?;$", body, re.M):
        size = _SIZES.get(kind, 1)
        widest = max(widest, size)
        end = -(-end // size) * size + size * int(count or 1)
    return -(-end // widest) * widest


class EmulatedDriver:
    """``failures``: error codes that the next launches give instead of doing anything."""

    CUfunction = CUdevice = CUlibrary = CUkernel = int
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __init__(self, folder):
        self.folder = Path(folder)
        self.texts, self.kernels, self.queue = [], [], []
        self.loaded, self.failures, self.kept, self.shared, self.streams = {}, [], [], {}, []

    def cuLibraryLoadData(  # noqa: N802
        self, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
        libraryOptionValues, numLibraryOptions,
    ):  # fmt: skip
        self.texts.append(code.decode())
        return Status(0), len(self.texts) - 1

    def cuLibraryGetKernel(self, library, name):  # noqa: N802
        self.kernels.append((library, name.decode(), size_of(self.texts[library], name.decode())))
        return Status(0), len(self.kernels) - 1

    def cuKernelSetAttribute(self, attrib, val, kernel, dev):  # noqa: N802
        assert attrib == 8
        self.shared[kernel] = val
        return (Status(0),)

    def cuLaunchKernel(  # noqa: N802
        self, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
        hStream, kernelParams, extra,
    ):  # fmt: skip
        if self.failures:
            return (Status(self.failures.pop(0)),)
        assert (gridDimY, gridDimZ, blockDimY, blockDimZ, extra) == (1, 1, 1, 1, 0)
        assert 0 < gridDimX < 1 << 31 and 0 < blockDimX <= 1024
        assert sharedMemBytes <= self.shared.get(f, 48 << 10)
        address = ctypes.c_uint64.from_address(kernelParams).value
        data = ctypes.string_at(address, self.kernels[f][2])
        self.queue.append((f, gridDimX, blockDimX, data))
        self.streams.append(hStream)
        return (Status(0),)

    def cuGetErrorName(self, error):  # noqa: N802
        names = {700: b"CUDA_ERROR_ILLEGAL_ADDRESS", 201: b"CUDA_ERROR_INVALID_CONTEXT"}
        return Status(0), names.get(error, b"CUDA_ERROR_UNKNOWN")

    def cuGetErrorString(self, error):  # noqa: N802
        return Status(0), b"what happened"

    def synchronize(self):
        """Do all that was launched."""
        self._compile(sorted({f for f, *_ in self.queue} - set(self.loaded)))
        for f, grid, block, data in self.queue:
            self.loaded[f](ctypes.create_string_buffer(data, len(data)), grid, block)
        self.queue.clear()
        self.kept.clear()

    def _compile(self, kernels):
        if not kernels:
            return
        parts = [SHIM.read_text()]
        for f in kernels:
            library, name, _ = self.kernels[f]
            text = self.texts[library].replace(NATIVE, "").replace('extern "C" ', "")
            meets = str(any(word in text.split(f"{name}_args a)")[1] for word in _MEETS)).lower()
            parts.append(
                f"namespace unit_{f} {{ {text}\n"
                f"static void call(const void* a) {{ {name}(*(const {name}_args*)a); }} }}\n"
                f'extern "C" void run_{f}(const void* a, unsigned grid, unsigned block) '
                f"{{ launch(unit_{f}::call, a, grid, block, {meets}); }}"
            )
        key = hashlib.sha256("".join(parts).encode()).hexdigest()[:16]
        source, library = self.folder / f"{key}.cpp", self.folder / f"{key}.so"
        source.write_text("\n".join(parts))
        command = [COMPILER, *FLAGS, "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]
        loaded = ctypes.CDLL(str(library))
        self.loaded |= {f: getattr(loaded, f"run_{f}") for f in kernels}


class HostAround:
    """Where arrays lie (``disttrain.backends.cuda.launch.Around``): memory of numpy's."""

    def __init__(self, array_type, driver):
        self.array_type, self.driver, self.entered = array_type, driver, 0

    def device(self):
        return 0

    def capability(self, index):
        return (9, 0)

    def stream(self):
        return 7

    def pointer(self, array):
        self.driver.kept.append(array)  # what a stream still uses is not given out again
        return array.__array_interface__["data"][0]

    def scratch(self, size):
        memory = np.full(size + 256, 0xFF, np.uint8)
        self.driver.kept.append(memory)
        return SimpleNamespace(ptr=-(-memory.ctypes.data // 256) * 256)

    def enter(self):
        self.entered += 1
