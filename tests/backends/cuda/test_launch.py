"""Launching: a call of a fused function, its plan, the struct's bytes, the kernel, its result; with
an emulated driver whose calls are those of the real binding."""

import inspect
import os
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from standins.cuda_driver import EmulatedDriver, HostAround, text_as_image
from standins.cuda_on_host import COMPILER

from disttrain.backends.cuda import launch as launching
from disttrain.backends.cuda import nvrtc
from disttrain.backends.cuda.launch import Launcher
from disttrain.backends.cuda.packing import Layout, StructMemory
from disttrain.backends.device import platform as places
from disttrain.backends.device.codes import table as codes
from disttrain.backends.device.structs import Field, Number, Pointer, packed
from disttrain.backends.fused import casts, cross_entropy, elementwise, softmax
from disttrain.backends.fused.normalization import norms
from disttrain.backends.lang.kernel import Array, Scalar
from disttrain.backends.lang.kernel import elementwise as made
from disttrain.errors import DeviceError
from disttrain.optim import rules

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")
EVERYTHING = bool(os.environ.get("EVERY_CUDA_KERNEL"))
ADD = made("add", lambda a, b: a + b, (Array("a", "float32"), Array("b", "float32")), "float32")


class Raw(np.ndarray):
    """Stands for an array on a device."""


class Emulated(places.Platform):
    """Launches with the emulated driver."""

    kind, array_type, xp = "emulated", Raw, np

    def __init__(self, folder):
        self.driver = EmulatedDriver(folder)
        self.around = HostAround(Raw, self.driver)
        launcher = Launcher(self.around, self.driver, text_as_image)
        self.launcher, self.launch = launcher, launcher.launch
        self.launch_many, self.run_code = launcher.launch_many, launcher.run_code

    def index_of(self, array):
        return 0


Emulated.__abstractmethods__ = frozenset()


@pytest.fixture
def emulated(tmp_path, monkeypatch):
    monkeypatch.setattr(nvrtc, "architectures", lambda: [80, 90, 100])
    places.offer("emulated", lambda: Emulated(tmp_path))
    yield places.platform("emulated")
    places.offer("emulated", None)


def there(a):
    if not isinstance(a, np.ndarray):
        return a
    return a.copy().view(Raw) if a.ndim else a.copy()


class Calls:
    """Calls that are made on device arrays first, all of which then run, and are compared."""

    def __init__(self):
        self.made = []

    def add(self, fn, *args, tolerance=2e-6):
        wanted = fn(*[a.copy() if isinstance(a, np.ndarray) else a for a in args])
        self.made.append((fn(*map(there, args)), wanted, tolerance, str(fn)))

    def check(self, driver):
        driver.synchronize()
        for got, wanted, tolerance, label in self.made:
            pairs = zip(got, wanted) if isinstance(wanted, tuple) else [(got, wanted)]
            for g, w in pairs:
                if isinstance(g, Raw):
                    g, w = np.asarray(g, np.float64), np.asarray(w, np.float64)
                    np.testing.assert_allclose(
                        g, w, rtol=tolerance, atol=tolerance * max(1, abs(w).max()), err_msg=label
                    )


def _float32_calls(calls):
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, 33, 20)).astype(np.float32)
    weight, bias = rng.normal(size=(2, 20)).astype(np.float32)
    target = rng.integers(0, 20, 33)
    calls.add(elementwise.gelu, x)
    calls.add(elementwise.relu_backward, g[:, ::2], x[:, ::2])
    calls.add(elementwise.silu_backward, g, x[0])
    calls.add(lambda x, y: elementwise.axpy(2.0, x, y), x, g)
    calls.add(lambda *a: elementwise.sum_arrays(a), *[x] * 9)
    calls.add(softmax.softmax, x)
    calls.add(norms.layer_norm, x, weight, bias, 1e-5)
    mean, rstd = x.mean(-1), 1 / x.std(-1)
    calls.add(norms.layer_norm_backward, g, x, mean, rstd, weight, tolerance=2e-5)
    calls.add(lambda *a: cross_entropy.cross_entropy(*a)[:2], x, target)
    lse = np.log(np.exp(x).sum(-1))
    calls.add(cross_entropy.cross_entropy_backward, 0.5, x, target, lse)
    if EVERYTHING:
        calls.add(softmax.log_softmax, x)
        calls.add(softmax.softmax_backward, g, x)
        calls.add(norms.rms_norm, x, weight, 1e-5)
        calls.add(norms.rms_norm_backward, g, x, rstd, weight, tolerance=2e-5)
        calls.add(elementwise.dropout, x, x > 0, 2.0)


def test_fused_functions_run_from_their_call_to_the_kernel(emulated):
    calls = Calls()
    _float32_calls(calls)
    x = np.random.default_rng(1).normal(size=(40, 30)).astype(ml_dtypes.bfloat16)
    calls.add(softmax.softmax, x, tolerance=1e-2)
    wide = np.random.default_rng(2).normal(size=5000).astype(np.float32)
    calls.add(lambda a: casts.scaled(a, 0.5, np.empty_like(a, np.float16)), wide, tolerance=1e-3)
    calls.check(emulated.driver)
    assert set(emulated.driver.streams) == {7}


def test_a_rule_steps_many_parameters_in_one_launch(emulated):
    rng = np.random.default_rng(3)
    hyper = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
    hyper |= {"decoupled": True, "maximize": False}
    shapes = [(3, 5), (64,), (0,), (7,)]
    sets = [
        [*(rng.uniform(0.5, 1, s).astype(np.float32) for _ in range(4)), np.asarray(1.0)]
        for s in shapes
    ]
    sets.append([rng.uniform(0.5, 1, (4, 6)).astype(np.float32)[:, ::2] for _ in range(4)])
    sets[-1].append(np.asarray(1.0))
    lying = [[there(a) for a in one] for one in sets]
    gaps = [np.zeros((4, 6), np.float32).view(Raw)[:, ::2] for _ in range(4)]
    for a, w in zip(gaps, sets[-1]):
        a[...] = w
    lying[-1][:4] = gaps
    for one in sets:
        rules.prepared(rules.adam, hyper)(*one)
    step = rules.together(rules.adam, hyper)
    step(lying)
    assert len(emulated.driver.queue) == 2  # one for those without gaps, one for that with gaps
    emulated.driver.synchronize()
    for one, want in zip(lying, sets):
        for a, w in zip(one[:4], want[:4]):
            np.testing.assert_allclose(np.asarray(a), w, rtol=1e-6)


def test_many_arrays_are_copied_into_one_and_out_of_it_in_one_launch_each(emulated):
    rng = np.random.default_rng(4)
    apart = [rng.normal(size=s).astype(np.float32) for s in ((3, 4), (5,), (2, 2, 2))]
    flat = there(np.zeros(25, np.float16))
    ends = np.cumsum([0, *(a.size for a in apart)])
    parts = [flat[i:j].reshape(a.shape) for i, j, a in zip(ends, ends[1:], apart)]
    back = [there(np.zeros_like(a)) for a in apart]
    casts.copied([there(a) for a in apart], parts)
    casts.copied(parts, back)
    assert len(emulated.driver.queue) == 2
    emulated.driver.synchronize()
    for a, b in zip(apart, back):
        np.testing.assert_array_equal(a.astype(np.float16), np.asarray(b).astype(np.float16))
    host = [np.zeros(5, np.int64)]
    casts.copied([apart[1] * 10], host)
    np.testing.assert_array_equal(host[0], (apart[1] * 10).astype(np.int64))


def test_much_shared_memory_is_asked_for_before_it_is_used(emulated):
    q = there(np.zeros((1, 1, 64, 128), ml_dtypes.bfloat16))
    lse = there(np.zeros((1, 1, 64), np.float32))
    emulated.run_code(codes.attention_backward(), (*[q] * 5, lse, *[q] * 3, 0.1))
    assert [launch[1:3] for launch in emulated.driver.queue] == [(16, 128), (1, 128), (1, 128)]
    assert list(emulated.driver.shared.values()) == [52480, 52480]
    with pytest.raises(DeviceError, match="attention: ndarray where a device array is needed"):
        emulated.run_code(codes.attention(), (*[q] * 4, np.zeros(3), 0.1))


def test_codes_are_launched_with_their_numbers(emulated):
    out = there(np.zeros((5, 7), np.float32))
    emulated.run_code(codes.UNIFORM, (out, (1 << 64) - 1, 5))
    emulated.driver.synchronize()
    want = np.zeros((5, 7), np.float32)
    codes.UNIFORM.reference(want, (1 << 64) - 1, 5)
    np.testing.assert_array_equal(np.asarray(out), want)


def test_numbers_stand_for_arrays_and_arrays_for_numbers(emulated):
    x = np.arange(6, dtype=np.float32)
    out, other = there(np.zeros(6, np.float32)), there(np.zeros(6, np.float32))
    emulated.launch(ADD, (there(x), np.float32(2.5), out))
    scaled = made("scaled", lambda x, s: x * s, (Array("x", "float32"), Scalar("s")), "float32")
    emulated.launch(scaled, (there(x), np.asarray(3.0, np.float32).view(Raw), other))
    emulated.driver.synchronize()
    np.testing.assert_array_equal(np.asarray(out), x + 2.5)
    np.testing.assert_array_equal(np.asarray(other), x * 3)
    with pytest.raises(DeviceError, match=r"b, of shape \(6,\), is on the cpu"):
        emulated.launch(ADD, (there(x), x, out))


def test_what_was_seen_before_is_compiled_and_planned_once(emulated):
    calls = []
    compile_once = emulated.launcher.compiler
    emulated.launcher.compiler = lambda *a: calls.append(a) or compile_once(*a)
    for shape in ((3, 4), (3, 4), (5, 6)):
        emulated.launch(ADD, tuple(there(np.ones(shape, np.float32)) for _ in range(3)))
    assert len(calls) == 1 and len(emulated.launcher.known) == 2
    assert len(emulated.driver.queue) == 3


def test_errors_of_the_driver_are_named_with_the_kernel_and_its_arrays(emulated):
    arrays = tuple(there(np.ones((3, 4), np.float32)) for _ in range(3))
    emulated.driver.failures = [700]
    with pytest.raises(DeviceError) as error:
        emulated.launch(ADD, arrays)
    text = str(error.value)
    assert "kernel add on (3, 4) float32, (3, 4) float32" in text
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (what happened)" in text
    assert "everything that this process asks of the device fails from now on" in text
    emulated.driver.failures = [201]  # a thread that has no context yet: it is given one
    emulated.launch(ADD, arrays)
    assert emulated.around.entered == 1 and len(emulated.driver.queue) == 1
    emulated.driver.failures = [1]
    with pytest.raises(DeviceError, match="CUDA_ERROR_UNKNOWN"):
        emulated.launch(ADD, arrays)


def test_structs_are_packed_as_records_are():
    fields = [Field("p0", "u64"), Field("k", "u32"), Field("m", "u64", 3), Field("s0", "float32")]
    fields += [Field("flag", "bool"), Field("s1", "int32"), Field("q", "u64")]
    values = {"p0": Pointer(1), "k": 7, "m": (Pointer(0), 5, Pointer(-1, 16)), "s0": Number(0)}
    values |= {"flag": 1, "s1": Number(1), "q": Pointer(0, 8)}
    for numbers in ([0.5, -3.0], [1e300, -(1 << 40) - 1], [float("-inf"), np.int64(4)]):
        layout = Layout(fields, values, 2, 2)
        room = StructMemory(layout.size)
        layout.write(room, [1000, 2000], numbers, 4096)
        with np.errstate(over="ignore"):
            numbers = [np.float64(numbers[0]), np.int64(numbers[1])]
            want = packed(fields, values, [1000, 2000], numbers, 4096)
        assert room.bytes.tobytes() == want
        assert room.address % 8 == 0 and room.pointer[0] == room.bytes.ctypes.data


def test_the_emulated_calls_are_those_of_the_binding():
    driver = pytest.importorskip("cuda.bindings.driver")
    for name in (n for n in vars(EmulatedDriver) if n.startswith("cu") and n[2].isupper()):
        real = inspect.signature(getattr(driver, name))
        own = inspect.signature(getattr(EmulatedDriver, name))
        assert [*own.parameters][1:] == [*real.parameters], name
    for name in ("CUfunction", "CUdevice", "CUlibrary", "CUkernel"):
        assert int(getattr(driver, name)(5)) == 5
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert int(attribute) == 8
    assert not driver.CUresult(0) and driver.CUresult(700) and int(driver.CUresult(700)) == 700


def test_without_the_binding_it_says_what_to_install(emulated, monkeypatch):
    launcher = Launcher(emulated.around, None, text_as_image)
    monkeypatch.setattr(
        launching, "importlib", SimpleNamespace(import_module=_no_module), raising=True
    )
    with pytest.raises(DeviceError, match="cuda-bindings, which is not installed"):
        launcher.launch(ADD, tuple(there(np.ones(3, np.float32)) for _ in range(3)))


def _no_module(name):
    raise ImportError(name)
