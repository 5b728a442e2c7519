"""cuDNN's backend interface, computed by the host's own convolutions: what ``ctypes`` would find in
the library, held to what the header says of it (types of attributes, what is set before what is
finished). ``engines``: the notes of each engine that it suggests, and those that fail at what.
"""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from disttrain.backends.cuda.libraries import cudnn as c
from disttrain.ops.declare import REGISTRY

# Attributes of each descriptor, the types of their elements, and whether they are needed.
_TENSOR = {c.TENSOR_TYPE: c.DATA_TYPE, c.TENSOR_SIZES: c.INT64, c.TENSOR_STRIDES: c.INT64,
           c.TENSOR_ID: c.INT64, c.TENSOR_ALIGNMENT: c.INT64}  # fmt: skip
_CONV = {c.CONV_TYPE: c.DATA_TYPE, c.CONV_MODE: c.MODE, c.CONV_DILATIONS: c.INT64,
         c.CONV_STRIDES: c.INT64, c.CONV_POST: c.INT64, c.CONV_PRE: c.INT64,
         c.CONV_DIMS: c.INT64}  # fmt: skip
_NEEDED = {
    c.TENSOR: _TENSOR,
    c.CONVOLUTION: _CONV,
    c.GRAPH: {c.GRAPH_HANDLE: c.HANDLE, c.GRAPH_OPERATIONS: c.DESCRIPTOR},
    c.HEURISTICS: {c.HEUR_GRAPH: c.DESCRIPTOR, c.HEUR_MODE: c.HEURISTIC},
    c.PLAN: {c.PLAN_HANDLE: c.HANDLE, c.PLAN_CONFIG: c.DESCRIPTOR},
    c.PACK: {c.PACK_IDS: c.INT64, c.PACK_POINTERS: c.POINTER, c.PACK_WORKSPACE: c.POINTER},
    **{
        kind: {at: c.DESCRIPTOR for name, at in names.items() if len(name) < 5}
        for kind, names in c.OPERATIONS.items()
    },
}
_BY_KIND = {c.FORWARD: "conv", c.INPUT_GRAD: "conv_input_grad", c.WEIGHT_GRAD: "conv_weight_grad"}
BAD_PARAM, NOT_SUPPORTED = 2000, 3000


class _Descriptor:
    def __init__(self, kind):
        self.kind, self.set, self.done, self.about = kind, {}, False, None


class Library:
    def __init__(self, engines=((),), refused=(), unbuildable=(), workspace=512):
        self.engines, self.refused, self.unbuildable = engines, refused, unbuildable
        self.workspace = workspace
        self.alive, self.numbers = {}, itertools.count(0x100, 16)
        self.handles, self.ran, self.streams = [], [], []

    def cudnnGetErrorString(self, status):  # noqa: N802
        return f"CUDNN_STATUS_{status}".encode()

    def cudnnCreate(self, handle):  # noqa: N802
        handle._obj.value = next(self.numbers)
        self.handles.append(handle._obj.value)
        return 0

    def cudnnSetStream(self, handle, stream):  # noqa: N802
        assert handle.value in self.handles
        self.streams.append(stream.value)
        return 0

    def cudnnBackendCreateDescriptor(self, kind, out):  # noqa: N802
        out._obj.value = number = next(self.numbers)
        self.alive[number] = _Descriptor(kind.value)
        return 0

    def cudnnBackendDestroyDescriptor(self, descriptor):  # noqa: N802
        del self.alive[descriptor.value]
        return 0

    def cudnnBackendSetAttribute(self, descriptor, name, of, count, array):  # noqa: N802
        held = self.alive[descriptor.value]
        wanted = _NEEDED[held.kind].get(name.value)
        scale = name.value in [names[k] for names in c.OPERATIONS.values() for k in
                               ("alpha", "beta")]  # fmt: skip
        if held.done or (of.value not in (c.FLOAT, c.DOUBLE) if scale else of.value != wanted):
            return BAD_PARAM
        assert isinstance(array, c._C_TYPES[of.value] * count.value)
        held.set[name.value] = list(array)
        return 0

    def cudnnBackendFinalize(self, descriptor):  # noqa: N802
        held = self.alive[descriptor.value]
        if not set(_NEEDED[held.kind]) <= set(held.set):
            return BAD_PARAM
        held.done = True
        if held.kind == c.TENSOR and held.set[c.TENSOR_TYPE][0] in self.refused:
            return NOT_SUPPORTED
        if held.kind == c.PLAN:
            config = self.alive[held.set[c.PLAN_CONFIG][0]]
            held.about = config.about
            if config.about[0] in self.unbuildable:
                return NOT_SUPPORTED
        return 0

    def cudnnBackendGetAttribute(self, descriptor, name, of, most, count, array):  # noqa: N802
        held = self.alive[descriptor.value]
        if name.value == c.HEUR_RESULTS:
            fallback = held.set[c.HEUR_MODE] == [c.HEUR_FALLBACK]
            numbers = [len(self.engines) - 1] if fallback else range(len(self.engines) - 1)
            graph = self._frozen(held.set[c.HEUR_GRAPH][0])
            for i, number in enumerate(numbers):
                self.alive[array[i]].about = number, graph
            count._obj.value = len(numbers)
        elif name.value == c.CONFIG_ENGINE:
            self.alive[array[0]].about = held.about
            count._obj.value = 1
        elif name.value == c.ENGINE_NOTES:
            notes = self.engines[held.about[0]]
            array[: len(notes)] = notes
            count._obj.value = len(notes)
        elif name.value == c.PLAN_WORKSPACE:
            array[0], count._obj.value = self.workspace, 1
        else:
            return BAD_PARAM
        return 0

    def _frozen(self, graph):
        """What a graph says, which a plan keeps after its descriptors are gone."""
        operation = self.alive[self.alive[graph].set[c.GRAPH_OPERATIONS][0]]
        assert operation.done
        names = c.OPERATIONS[operation.kind]
        tensors = {}
        for name in "xwy":
            held = self.alive[operation.set[names[name]][0]]
            assert held.done
            tensors[held.set[c.TENSOR_ID][0]] = name, held.set
        return operation.kind, tensors, self.alive[operation.set[names["conv"]][0]].set

    def cudnnBackendExecute(self, handle, plan, pack):  # noqa: N802
        engine, (kind, tensors, conv) = self.alive[plan.value].about
        given = self.alive[pack.value].set
        assert given[c.PACK_WORKSPACE][0] or not self.workspace
        arrays = {}
        for number, pointer in zip(given[c.PACK_IDS], given[c.PACK_POINTERS], strict=True):
            name, tensor = tensors[number]
            assert pointer % tensor[c.TENSOR_ALIGNMENT][0] == 0
            arrays[name] = _memory(pointer, tensor)
        self.ran.append((engine, kind))
        x, w, y = arrays["x"], arrays["w"], arrays["y"]
        params = {"stride": tuple(conv[c.CONV_STRIDES]), "padding": tuple(conv[c.CONV_PRE]),
                  "dilation": tuple(conv[c.CONV_DILATIONS]),
                  "groups": x.shape[1] // w.shape[1]}  # fmt: skip
        forward = REGISTRY[_BY_KIND[kind]].forward
        if kind == c.FORWARD:
            y[...] = forward(x, w, **params)
        elif kind == c.INPUT_GRAD:
            x[...] = forward(y, w, size=x.shape[2:], **params)
        else:
            w[...] = forward(y, x, kernel=w.shape[2:], **params)
        return 0


def _memory(pointer, tensor):
    from ml_dtypes import bfloat16

    types = {0: np.float32, 1: np.float64, 2: np.float16, 9: bfloat16}
    kind = np.dtype(types[tensor[c.TENSOR_TYPE][0]])
    shape, strides = tensor[c.TENSOR_SIZES], [s * kind.itemsize for s in tensor[c.TENSOR_STRIDES]]
    size = kind.itemsize + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    row = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointer))
    return np.ndarray(shape, kind, row.data, 0, strides)
