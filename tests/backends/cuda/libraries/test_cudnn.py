"""Convolutions by cuDNN's backend interface: over a stand-in that computes on the host, and its
numbers and functions held against the library's header where the wheel is installed."""

import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from standins.cudnn import Library

from disttrain.backends.cuda.libraries import cudnn
from disttrain.backends.cuda.libraries.dnn import Dnn
from disttrain.backends.device.determinism import use_deterministic_algorithms
from disttrain.backends.device.precision import set_convolution
from disttrain.ops.declare import REGISTRY

ROUND = {2: 2e-2, 4: 1e-5, 8: 1e-12}


class Raw(np.ndarray):
    """numpy's memory with CuPy's way to say where it lies."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def raw(a):
    return np.asarray(a).view(Raw)


class Cuda:
    """What is asked of ``cupy``; the time of engine k is that of ``times``."""

    def __init__(self, lib, times=()):
        self.lib, self.times, self.device, self.recording = lib, times, 0, False
        self.keep = []
        self.cuda = SimpleNamespace(
            get_current_stream=lambda: SimpleNamespace(
                ptr=77, is_capturing=lambda: self.recording
            ),
            runtime=SimpleNamespace(getDevice=lambda: self.device), alloc=self.alloc,
            Event=lambda: SimpleNamespace(record=lambda: None, synchronize=lambda: None),
            get_elapsed_time=lambda start, end: self.times[lib.ran[-1][0]],
        )  # fmt: skip

    def ascontiguousarray(self, a):
        return raw(np.ascontiguousarray(a))

    def alloc(self, size):
        self.keep.append(np.zeros(size, np.uint8))
        return SimpleNamespace(ptr=self.keep[-1].ctypes.data)


CASES = [
    ((2, 4, 7), (6, 4, 3), (2,), (1,), (1,)),
    ((2, 4, 7, 6), (6, 2, 3, 2), (2, 1), (1, 0), (1, 2)),
    ((1, 2, 4, 5, 3), (3, 2, 2, 2, 2), (1, 2, 1), (0, 1, 1), (1, 1, 1)),
    ((2, 3, 5, 5), (3, 1, 3, 3), (1, 1), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation"), CASES)
def test_the_three_convolutions(size, kernel, stride, padding, dilation, dtype):
    rng = np.random.default_rng(0)
    lib = Library(engines=((),))
    dnn = Dnn(Cuda(lib), lib)
    params = {"stride": stride, "padding": padding, "dilation": dilation,
              "groups": size[1] // kernel[1]}  # fmt: skip
    how = stride, padding, dilation
    x, w = (rng.normal(size=s).astype(dtype) for s in (size, kernel))
    y = REGISTRY["conv"].forward(x, w, **params)
    g = rng.normal(size=y.shape).astype(dtype)
    dx = REGISTRY["conv_input_grad"].forward(g, w, size=size[2:], **params)
    dw = REGISTRY["conv_weight_grad"].forward(g, x, kernel=kernel[2:], **params)
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)  # channels last
    gaps = np.stack([x, x], -1)[..., 0]
    for _ in range(2):
        for image in (x, last, gaps):
            out = raw(np.zeros_like(y))
            assert dnn.conv("forward", raw(image), raw(w), out, *how)
            np.testing.assert_array_equal(out, y)
        out = raw(np.zeros_like(x))
        assert dnn.conv("input_grad", out, raw(w), raw(g), *how)
        np.testing.assert_allclose(out.astype("f8"), dx.astype("f8"), rtol=ROUND[x.itemsize])
        out = raw(np.zeros_like(w))
        assert dnn.conv("weight_grad", raw(x), out, raw(g), *how)
        np.testing.assert_allclose(out.astype("f8"), dw.astype("f8"), rtol=ROUND[x.itemsize])
    kept = [plan for own in vars(dnn._local).values() for plan in own.plans.values()]
    assert len(kept) <= 5  # two layouts forward (alignment may differ), each backward
    assert set(lib.alive) == {plan.descriptor for plan in kept}  # nothing else is kept
    assert set(lib.streams) == {77} and len(lib.handles) == 1


ENGINES = (
    (cudnn.NONDETERMINISTIC,), (cudnn.TENSOR_CORE,), (cudnn.TENSOR_CORE, cudnn.DOWN_CONVERT), (),
)  # fmt: skip


def chosen(lib, dtype=np.float32, times=(), recording=False):
    cupy = Cuda(lib, times)
    cupy.recording = recording
    x, w = raw(np.ones((1, 2, 4, 4), dtype)), raw(np.ones((2, 2, 3, 3), dtype))
    y = raw(np.zeros((1, 2, 2, 2), dtype))
    done = Dnn(cupy, lib).conv("forward", x, w, y, (1, 1), (0, 0), (1, 1))
    assert done == bool(y.any())
    return lib.ran[-1][0] if done else None


def test_settings_decide_which_engine_serves():
    try:
        assert chosen(Library(ENGINES)) == 1  # TF32 is allowed, as in PyTorch
        set_convolution("allow_tf32", False)
        assert chosen(Library(ENGINES)) == 3
        assert chosen(Library(ENGINES), np.float16) == 1
        set_convolution("deterministic", False)
        assert chosen(Library(ENGINES)) == 0
        use_deterministic_algorithms(True)
        assert chosen(Library(ENGINES)) == 3
        set_convolution("enabled", False)
        assert chosen(Library(ENGINES)) is None
    finally:
        use_deterministic_algorithms(False)
        for name in ("allow_tf32", "deterministic", "enabled"):
            set_convolution(name, True)


def test_the_fastest_is_found_where_that_is_asked():
    times = (0.5, 3.0, 1.0, 2.0)
    try:
        set_convolution("benchmark", True)
        lib = Library(ENGINES)
        assert chosen(lib, np.float16, times) == 2
        assert len(lib.alive) == 1  # the plans that were slower are gone
        set_convolution("benchmark_limit", 1)
        assert chosen(Library(ENGINES), np.float16, times) == 1
        set_convolution("benchmark_limit", 0)
        assert chosen(Library(ENGINES), np.float16, times, recording=True) == 1  # not tried then
    finally:
        set_convolution("benchmark", False)
        set_convolution("benchmark_limit", 10)


def test_where_the_library_has_no_way_the_caller_is_told():
    lib = Library(ENGINES, unbuildable=(1,))
    assert chosen(lib) == 3
    for lib in (Library(ENGINES, unbuildable=(1, 3)), Library(ENGINES, refused=(0,))):
        assert chosen(lib) is None and not lib.alive and not lib.ran
    assert chosen(Library(ENGINES), np.int32) is None


def header():
    spec = find_spec("nvidia") and find_spec("nvidia.cudnn")
    places = [] if spec is None else spec.submodule_search_locations
    files = [Path(p, "include", "cudnn_graph.h") for p in places]
    return next((f.read_text() for f in files if f.exists()), None)


def test_numbers_are_those_of_the_header():
    text = header()
    if text is None:
        pytest.skip("the wheel of cuDNN is not installed")
    known = {
        "CONVOLUTION_DESCRIPTOR": cudnn.CONVOLUTION, "ENGINE_DESCRIPTOR": cudnn.ENGINE,
        "ENGINECFG_DESCRIPTOR": cudnn.ENGINE_CONFIG, "ENGINEHEUR_DESCRIPTOR": cudnn.HEURISTICS,
        "EXECUTION_PLAN_DESCRIPTOR": cudnn.PLAN, "VARIANT_PACK_DESCRIPTOR": cudnn.PACK,
        "OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR": cudnn.FORWARD,
        "OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR": cudnn.WEIGHT_GRAD,
        "OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR": cudnn.INPUT_GRAD,
        "OPERATIONGRAPH_DESCRIPTOR": cudnn.GRAPH, "TENSOR_DESCRIPTOR": cudnn.TENSOR,
    }  # fmt: skip
    known = {f"BACKEND_{name}": value for name, value in known.items()}
    attributes = {
        "CONVOLUTION_COMP_TYPE": cudnn.CONV_TYPE, "CONVOLUTION_CONV_MODE": cudnn.CONV_MODE,
        "CONVOLUTION_DILATIONS": cudnn.CONV_DILATIONS, "CONVOLUTION_POST_PADDINGS": cudnn.CONV_POST,
        "CONVOLUTION_FILTER_STRIDES": cudnn.CONV_STRIDES,
        "CONVOLUTION_PRE_PADDINGS": cudnn.CONV_PRE,
        "CONVOLUTION_SPATIAL_DIMS": cudnn.CONV_DIMS, "ENGINEHEUR_MODE": cudnn.HEUR_MODE,
        "ENGINEHEUR_OPERATION_GRAPH": cudnn.HEUR_GRAPH, "ENGINEHEUR_RESULTS": cudnn.HEUR_RESULTS,
        "ENGINECFG_ENGINE": cudnn.CONFIG_ENGINE, "EXECUTION_PLAN_HANDLE": cudnn.PLAN_HANDLE,
        "EXECUTION_PLAN_ENGINE_CONFIG": cudnn.PLAN_CONFIG,
        "EXECUTION_PLAN_WORKSPACE_SIZE": cudnn.PLAN_WORKSPACE,
        "OPERATIONGRAPH_HANDLE": cudnn.GRAPH_HANDLE, "OPERATIONGRAPH_OPS": cudnn.GRAPH_OPERATIONS,
        "TENSOR_BYTE_ALIGNMENT": cudnn.TENSOR_ALIGNMENT, "TENSOR_DATA_TYPE": cudnn.TENSOR_TYPE,
        "TENSOR_DIMENSIONS": cudnn.TENSOR_SIZES, "TENSOR_STRIDES": cudnn.TENSOR_STRIDES,
        "TENSOR_UNIQUE_ID": cudnn.TENSOR_ID, "VARIANT_PACK_UNIQUE_IDS": cudnn.PACK_IDS,
        "VARIANT_PACK_DATA_POINTERS": cudnn.PACK_POINTERS,
        "VARIANT_PACK_WORKSPACE": cudnn.PACK_WORKSPACE,
        "ENGINE_NUMERICAL_NOTE": cudnn.ENGINE_NOTES,
    }  # fmt: skip
    words = {"FORWARD": cudnn.FORWARD, "BWD_DATA": cudnn.INPUT_GRAD,
             "BWD_FILTER": cudnn.WEIGHT_GRAD}  # fmt: skip
    for word, kind in words.items():
        tensors = {"x": "DX" if word == "BWD_DATA" else "X",
                   "w": "DW" if word == "BWD_FILTER" else "W",
                   "y": "Y" if word == "FORWARD" else "DY"}  # fmt: skip
        for name, at in cudnn.OPERATIONS[kind].items():
            end = {"conv": "CONV_DESC", "alpha": "ALPHA", "beta": "BETA"}.get(name)
            attributes[f"OPERATION_CONVOLUTION_{word}_{end or tensors[name]}"] = at
    known |= {f"ATTR_{name}": value for name, value in attributes.items()}
    known |= {f"TYPE_{name}": getattr(cudnn, at) for name, at in (
        ("HANDLE", "HANDLE"), ("DATA_TYPE", "DATA_TYPE"), ("INT64", "INT64"), ("FLOAT", "FLOAT"),
        ("DOUBLE", "DOUBLE"), ("VOID_PTR", "POINTER"), ("CONVOLUTION_MODE", "MODE"),
        ("HEUR_MODE", "HEURISTIC"), ("NUMERICAL_NOTE", "NOTE"),
        ("BACKEND_DESCRIPTOR", "DESCRIPTOR"),
    )}  # fmt: skip
    known |= {
        "DATA_FLOAT": cudnn.TYPES["float32"], "DATA_DOUBLE": cudnn.TYPES["float64"],
        "DATA_HALF": cudnn.TYPES["float16"], "DATA_BFLOAT16": cudnn.TYPES["bfloat16"],
        "CROSS_CORRELATION": cudnn.CROSS_CORRELATION, "HEUR_MODE_A": cudnn.HEUR_A,
        "HEUR_MODE_FALLBACK": cudnn.HEUR_FALLBACK,
        "NUMERICAL_NOTE_TENSOR_CORE": cudnn.TENSOR_CORE,
        "NUMERICAL_NOTE_DOWN_CONVERT_INPUTS": cudnn.DOWN_CONVERT,
        "NUMERICAL_NOTE_NONDETERMINISTIC": cudnn.NONDETERMINISTIC,
    }  # fmt: skip
    for name, value in known.items():
        found = re.search(rf"\bCUDNN_{name}(?: CUDNN_DEPRECATED_ENUM)? *= *(\d+)", text)
        assert found is not None and int(found[1]) == value, name


def test_the_real_library_takes_the_attributes():
    lib = cudnn.library()
    if lib is None:
        pytest.skip("cuDNN is not installed")
    calls = cudnn.Cudnn(lib)
    tensor = (
        cudnn.TENSOR, (cudnn.TENSOR_TYPE, cudnn.DATA_TYPE, [0]),
        (cudnn.TENSOR_SIZES, cudnn.INT64, [2, 4, 7, 6]),
        (cudnn.TENSOR_STRIDES, cudnn.INT64, [168, 42, 6, 1]), (cudnn.TENSOR_ID, cudnn.INT64, [1]),
        (cudnn.TENSOR_ALIGNMENT, cudnn.INT64, [16]),
    )  # fmt: skip
    sizes = (cudnn.CONV_PRE, cudnn.CONV_POST, cudnn.CONV_DILATIONS, cudnn.CONV_STRIDES)
    conv = (
        cudnn.CONVOLUTION, (cudnn.CONV_DIMS, cudnn.INT64, [2]),
        (cudnn.CONV_TYPE, cudnn.DATA_TYPE, [0]),
        (cudnn.CONV_MODE, cudnn.MODE, [cudnn.CROSS_CORRELATION]),
        *((at, cudnn.INT64, [1, 1]) for at in sizes),
    )  # fmt: skip
    for wanted in (tensor, conv):
        try:
            calls.free(calls.make(*wanted))
        except cudnn.CudnnError as error:  # what finishes them needs a driver
            assert str(error) == "cudnnBackendFinalize: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED"
    with pytest.raises(cudnn.CudnnError, match="SetAttribute: CUDNN_STATUS_BAD_PARAM"):
        calls.make(cudnn.TENSOR, (cudnn.CONV_DIMS, cudnn.INT64, [2]))
    assert cudnn.version() >= 90000
