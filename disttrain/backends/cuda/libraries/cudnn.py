"""cuDNN's library, where the wheel ``nvidia-cudnn-cu12`` or ``-cu13`` or a system's copy is there:
the few functions of its backend interface that convolutions need, and what its numbers are called.

The interface is a C one that has stayed the same since cuDNN 8: descriptors with attributes, of
which ``make`` builds one. (The classic functions are deprecated; the Python front end needs 250 MB
more since 1.32.) Numbers are those of ``cudnn_graph.h``. Knows no array.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_NAME = "libcudnn.so.9"

# cudnnBackendDescriptorType_t
CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN = 1, 2, 3, 4, 5
FORWARD, WEIGHT_GRAD, INPUT_GRAD, GRAPH, PACK, TENSOR = 10, 11, 12, 15, 16, 17

# cudnnBackendAttributeType_t, as the C types of their elements
HANDLE, DATA_TYPE, INT64, FLOAT, DOUBLE, POINTER, MODE, HEURISTIC = 0, 1, 3, 4, 5, 6, 7, 8
NOTE, DESCRIPTOR = 11, 15
_C_TYPES = {
    HANDLE: ctypes.c_void_p, DATA_TYPE: ctypes.c_int, INT64: ctypes.c_int64,
    FLOAT: ctypes.c_float, DOUBLE: ctypes.c_double, POINTER: ctypes.c_void_p, MODE: ctypes.c_int,
    HEURISTIC: ctypes.c_int, NOTE: ctypes.c_int, DESCRIPTOR: ctypes.c_void_p,
}  # fmt: skip

# cudnnBackendAttributeName_t
CONV_TYPE, CONV_MODE, CONV_DILATIONS, CONV_STRIDES, CONV_POST, CONV_PRE, CONV_DIMS = range(100, 107)
HEUR_MODE, HEUR_GRAPH, HEUR_RESULTS = 200, 201, 202
CONFIG_ENGINE, PLAN_HANDLE, PLAN_CONFIG, PLAN_WORKSPACE = 300, 400, 401, 402
# alpha, beta, convolution, and the tensors by the names that dnn.py has for them
OPERATIONS = {
    FORWARD: {"alpha": 700, "beta": 701, "conv": 702, "w": 703, "x": 704, "y": 705},
    INPUT_GRAD: {"alpha": 706, "beta": 707, "conv": 708, "w": 709, "x": 710, "y": 711},
    WEIGHT_GRAD: {"alpha": 712, "beta": 713, "conv": 714, "w": 715, "x": 716, "y": 717},
}
GRAPH_HANDLE, GRAPH_OPERATIONS = 800, 801
TENSOR_ALIGNMENT, TENSOR_TYPE, TENSOR_SIZES, TENSOR_STRIDES, TENSOR_ID = 900, 901, 902, 903, 906
PACK_IDS, PACK_POINTERS, PACK_WORKSPACE, ENGINE_NOTES = 1000, 1001, 1003, 1303

# cudnnDataType_t, cudnnConvolutionMode_t, cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
CROSS_CORRELATION = 1
HEUR_FALLBACK, HEUR_A = 2, 3
TENSOR_CORE, DOWN_CONVERT, NONDETERMINISTIC = 0, 1, 4
NOTES = 16  # more than there are


class CudnnError(RuntimeError):
    """What a function of cuDNN's ended with: ``status``."""

    def __init__(self, name: str, status: int, text: str) -> None:
        self.status = status
        super().__init__(f"{name}: {text}")


def _places() -> list[str]:
    """Where the library may be: beside a wheel's package, then wherever the system looks."""
    spec = find_spec("nvidia") and find_spec("nvidia.cudnn")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    found = [Path(folder, "lib", _NAME) for folder in folders]
    return [*(str(p) for p in found if p.exists()), _NAME]


@functools.cache
def library() -> Any:
    """The library as ``ctypes`` has it; None where there is none. Starts no CUDA."""
    for place in _places():
        try:
            found = ctypes.CDLL(place)
        except OSError:
            continue
        found.cudnnGetVersion.restype = ctypes.c_size_t
        found.cudnnGetErrorString.restype = ctypes.c_char_p
        return found
    return None


@functools.cache
def version() -> int | None:
    """The library's version, as 92800 for 9.28.0; None where there is none."""
    found = library()
    return None if found is None else found.cudnnGetVersion()


class Cudnn:
    """Calls of a library. Descriptors and handles are numbers."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self.lib, name)(*args)
        if status:
            text = self.lib.cudnnGetErrorString(status)
            raise CudnnError(name, status, text.decode() if text else f"status {status}")

    def handle(self) -> int:
        """A handle of the current device."""
        out = ctypes.c_void_p()
        self._call("cudnnCreate", ctypes.byref(out))
        return out.value or 0

    def use(self, handle: int, stream: int) -> None:
        """What is executed by ``handle`` goes to ``stream``."""
        self._call("cudnnSetStream", ctypes.c_void_p(handle), ctypes.c_void_p(stream))

    def blank(self, kind: int) -> int:
        """A descriptor without attributes."""
        out = ctypes.c_void_p()
        self._call("cudnnBackendCreateDescriptor", ctypes.c_int(kind), ctypes.byref(out))
        return out.value or 0

    def free(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            self._call("cudnnBackendDestroyDescriptor", ctypes.c_void_p(descriptor))

    def make(self, kind: int, *attributes: tuple[int, int, Sequence]) -> int:
        """A descriptor with ``attributes`` (name, type, elements), ready for use."""
        made = self.blank(kind)
        try:
            for name, of, elements in attributes:
                array = (_C_TYPES[of] * len(elements))(*elements)
                self._call(
                    "cudnnBackendSetAttribute", ctypes.c_void_p(made), ctypes.c_int(name),
                    ctypes.c_int(of), ctypes.c_int64(len(elements)), array,
                )  # fmt: skip
            self._call("cudnnBackendFinalize", ctypes.c_void_p(made))
        except CudnnError:
            self.free(made)
            raise
        return made

    def get(self, descriptor: int, name: int, of: int, most: int, into: Sequence = ()) -> list:
        """Elements of an attribute, at most so many. Descriptors are read ``into`` blank ones."""
        array = (_C_TYPES[of] * most)(*into)
        count = ctypes.c_int64()
        self._call(
            "cudnnBackendGetAttribute", ctypes.c_void_p(descriptor), ctypes.c_int(name),
            ctypes.c_int(of), ctypes.c_int64(most), ctypes.byref(count), array,
        )  # fmt: skip
        return list(array[: min(count.value, most)])

    def execute(self, handle: int, plan: int, pack: int) -> None:
        self._call(
            "cudnnBackendExecute", ctypes.c_void_p(handle), ctypes.c_void_p(plan),
            ctypes.c_void_p(pack),
        )  # fmt: skip
