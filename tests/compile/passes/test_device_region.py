"""A region on a device: one kernel for its operations, whose text is compiled and run, too."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from standins.cuda_driver import EmulatedDriver, HostAround, text_as_image
from standins.cuda_on_host import COMPILER

import disttrain as dt
from disttrain.backends.cuda import nvrtc
from disttrain.backends.cuda.codegen.emit import unit
from disttrain.backends.cuda.launch import Launcher
from disttrain.backends.device import platform as places
from disttrain.compile import capture
from disttrain.compile.passes import device_region, fuse_there, optimize
from disttrain.compile.passes.device_region import DeviceRegion
from disttrain.core.tensor import wrap
from support.cases.drawn_chains import canonical, draw, fn_of, given
from support.region_texts import regions, texts

SEEDS = range(300, 336)
TYPES = ("f4", "f4", "bfloat16", "float16", "f8")
REASON = nvrtc.why_unavailable()
needs_nvrtc = pytest.mark.skipif(bool(REASON), reason=REASON or "there")


def there(*shape, dtype=dt.float32):
    return dt.randn(*shape).to("cuda", dtype)


def chain(x, y):
    return ((x * 2 + y).relu() - y) * x


def drawn() -> list[DeviceRegion]:
    """The regions of drawn programs."""
    found = []
    with np.errstate(all="ignore"):
        for seed in SEEDS:
            source, kinds, grads = draw(seed, TYPES)
            args = given(kinds, grads, 0, "cuda")
            found += regions(capture(fn_of(source))(*args).graph)
    return found


def test_the_kernel_comes_after_a_run_and_gives_the_same_bits(double):
    x, y = there(5, 7, dtype=dt.bfloat16), there(7, dtype=dt.bfloat16)
    wanted = chain(x, y).tolist()
    (one,) = regions(capture(chain)(x, y).graph)
    prim, launches = one.primitive(), []
    for _ in range(3):
        double.counts.clear()
        found = prim.compute((x.array, y.array), {})
        launches.append(double.counts.launches)
        assert wrap(found).tolist() == wanted
    assert launches == [7, 1, 1]  # (a half type times a number is three)


def test_numbers_are_no_part_of_the_kernel(double):
    x = there(4, 4)

    def of(n):
        return regions(capture(lambda a: (a * n + n).clamp(0.5, n))(x).graph)[0]

    one, other = of(2.0), of(3.0)
    assert one.kernel() == other.kernel()
    assert one._elements()[1].values == [2.0, 0.5] and other._elements()[1].values == [3.0, 0.5]
    assert device_region._one(one.kernel()) is device_region._one(other.kernel())


def test_half_types_are_rounded_after_each_operation(double):
    x = dt.full((3,), 1.0, dtype=dt.bfloat16, device="cuda")
    (one,) = regions(capture(lambda a: (a + 2.0**-9) - 1.0)(x).graph)
    one.left = 0
    assert (
        one.primitive().compute((x.array,), {}).to_host().astype(np.float32).tolist() == [0.0] * 3
    )


def test_it_writes_over_operands_of_one_stream_alone(double):
    x, y = there(8, 8), there(8, 8)
    (one,) = regions(capture(chain)(x, y).graph)
    one.left, prim = 0, one.primitive()
    prim.write_into([0])
    wanted = chain(x, y).tolist()
    a = x.clone()
    over = prim.compute((a.array, y.array), {})
    assert over.data is a.array.data and a.tolist() == wanted
    dt.cuda.Stream()
    b = x.clone()
    apart = prim.compute((b.array, y.array), {})
    assert apart.data is not b.array.data and b.tolist() == x.tolist()
    assert wrap(apart).tolist() == wanted


def test_a_copy_of_what_ends_is_no_launch(double):
    x = there(8, 8)
    (one,) = [DeviceRegion(g.instructions, g.inputs, g.outputs, g.metas)
              for g in [capture(lambda a: a.clone())(x).graph]]  # fmt: skip
    one.left = 0
    one.write_into([0])
    double.counts.clear()
    assert one.primitive().compute((x.array,), {}).data is x.array.data
    assert double.counts.launches == 0


def test_on_the_host_it_is_its_operations(double):
    x, y = there(3, 3), there(3, 3)
    (one,) = regions(capture(chain)(x, y).graph)
    got = one.primitive().compute((x.cpu().array, y.cpu().array), {})
    assert got.tolist() == chain(x.cpu(), y.cpu()).tolist()


def test_what_is_of_the_host_stays_apart(double):
    x, scale = there(3, 3), dt.tensor(2.0)
    graph = optimize(capture(lambda a: (a * scale).relu() * 3.0)(x).graph, (fuse_there,))
    assert [i.prim.name for i in graph.instructions] == ["mul", "fused[relu, mul]"]


# -- the text ----------------------------------------------------------------------------------
class Late(Exception):  # noqa: N818
    """What is no launch would see memory before the launches have run."""


class Raw(np.ndarray):
    """Stands for an array on a device."""

    def astype(self, *args, **kwargs):
        raise Late

    copy = astype


class Emulated(places.Platform):
    """Launches the text with a driver that a host compiler stands in for."""

    kind, array_type, xp, index = "emulated", Raw, np, 0

    def __init__(self, folder):
        self.driver = EmulatedDriver(folder)
        around = HostAround(Raw, self.driver)
        self.launch = Launcher(around, self.driver, text_as_image).launch

    def current(self):
        return 0

    def empty(self, shape, dtype):
        return np.empty(shape, dtype).view(Raw)


Emulated.__abstractmethods__ = frozenset()


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")
@pytest.mark.timeout(300)
def test_the_text_gives_the_bits_of_its_operations_texts(double, tmp_path, monkeypatch):
    monkeypatch.setattr(nvrtc, "architectures", lambda: [80, 90, 100])
    platform, rng, pairs = Emulated(tmp_path), np.random.default_rng(0), []
    for one in drawn():
        drawn_arrays = [rng.normal(size=shape) for shape, _ in one.metas.values()]
        arrays = [
            (a > 0 if kind.kind == "b" else a.astype(kind)).view(Raw)
            for a, (_, kind) in zip(drawn_arrays, one.metas.values(), strict=True)
        ]
        with contextlib.suppress(Late):
            one.left = 1
            pairs.append((one, one.run(platform, *arrays), one.run(platform, *arrays)))
    platform.driver.synchronize()
    assert len(pairs) > 30 and sum(len(one.outputs) > 1 for one, *_ in pairs) > 10
    for one, by_members, at_once in pairs:
        several = len(one.outputs) > 1
        for a, b in zip(*([x] if not several else x for x in (by_members, at_once)), strict=True):
            assert canonical(a) == canonical(b), one.kernel()


@needs_nvrtc
@pytest.mark.timeout(300)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_text_compiles_and_spills_nothing(double, arch):
    if int(arch[3:]) not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc.version()} does not know {arch}")
    part = ("sm_80", "sm_90", "sm_100").index(arch)
    found, wide = {}, set()
    for number, one in enumerate(drawn()[part::3]):
        for name, text in texts(one):
            own = f"{name}_{number}"
            found[own] = text.replace(name, own)
            wide |= {own} if any(p.dtype == "float64" for p in one.kernel().params) else set()
    made = nvrtc.compile_unit(unit(list(found.values())), arch)
    assert set(made.functions) == set(found) and made.image[:4] == b"\x7fELF"
    for name, used in made.functions.items():
        assert used.spills <= (32 if name in wide else 0), (
            name,
            used,
        )  # (tables of erf in float64)
        assert used.registers <= 200, (name, used)


PROGRAM = """
import disttrain as dt
from disttrain.backends.cuda import nvrtc
from disttrain.backends.cuda.codegen.emit import unit
from disttrain.backends.device import platform
from disttrain.compile import capture
from standins.device_double.double import DoublePlatform
from support.region_texts import regions, texts

double = DoublePlatform(1)
platform.offer("cuda", lambda: double)
made, plain = [], nvrtc._compile
nvrtc._compile = lambda *args: made.append(args) or plain(*args)
x = dt.ones(6, 6, dtype=dt.bfloat16, device="cuda")
for n in (2.0, 3.0):
    graph = capture(lambda a: ((a * n).exp() + a.sum(0)).tanh() * a)(x).graph
    for one in regions(graph):
        for name, text in texts(one):
            nvrtc.compile_unit(unit([text]), "sm_90")
print(len(made))
"""


@needs_nvrtc
@pytest.mark.timeout(200)
def test_a_second_process_compiles_nothing(tmp_path):
    """Kernels are kept by text, architecture and NVRTC's version; numbers are no part of a text."""
    roots = [str(Path(__file__).parents[2]), *sys.path]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(roots)}
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env
        )
        assert done.returncode == 0, done.stderr
        found.append(int(done.stdout))
    assert found == [1, 0]
