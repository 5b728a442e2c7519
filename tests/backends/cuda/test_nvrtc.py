"""Generated CUDA C compiled by NVRTC, without a GPU: nothing spills, errors show the line."""

import itertools
import os
import subprocess
import sys

import pytest

from disttrain.backends.cuda import nvrtc
from disttrain.backends.cuda.codegen.emit import function, symbol, unit
from disttrain.backends.cuda.plan import make_plan, plan_many
from disttrain.backends.device.structs import Operand
from support.cases.code_cases import code_cases
from support.cases.kernel_catalogue import fused_kernels, operands, primitive_kernels

REASON = nvrtc.why_unavailable()
needs_nvrtc = pytest.mark.skipif(bool(REASON), reason=REASON or "there")

TYPES = ("float32", "bfloat16", "float64", "float16")
# Lengths of rows that take a warp or a block, and are kept in registers or read again.
SHAPES = [
    *(((300, cols), "plain") for cols in (100, 768, 50000)),
    ((300, 3000), "strided"),
    ((300, 40), "far"),
]
EVERYTHING = bool(os.environ.get("EVERY_CUDA_KERNEL"))  # each in all types, shapes and layouts
# Up to 16 views, a sum and an address each (only the host runs these); rows of doubles, eight of
# which a thread keeps, or six times four. In which type each is compiled depends on how many
# kernels there are.
MAY_USE_MANY = ("products_", "norm_rows_v8", "norm_rows_v4_d1_t128x1i6", "norm_backward_rows_v8")
MAY_USE_STACK = ("sin", "cos")  # arguments beyond 1e5 are reduced with a table in local memory


def functions():
    """(name, text) of what is compiled: every kernel once, in one type, shape and layout after the
    other; the optimizers' also for many arrays at once."""
    numbers = itertools.count()
    turn = itertools.count()
    by_type = {t: (fused_kernels(t), primitive_kernels(t)) for t in TYPES}
    for fused in (True, False):
        for name in by_type["float32"][0 if fused else 1]:
            for dtype in TYPES if EVERYTHING else [TYPES[next(turn) % 4]]:
                kernel = by_type[dtype][0 if fused else 1][name]
                forms = dict.fromkeys(_forms(name, kernel, fused, next(numbers)))
                for form in forms:
                    own = f"{symbol(kernel, form)}_{next(numbers)}"
                    yield own, function(kernel, form, own)[0]


def _forms(name, kernel, fused, k):
    if not fused and not EVERYTHING:
        plans = [make_plan(kernel, operands(kernel, (30, 40), "strided"))]
    elif kernel.flat and not EVERYTHING:
        plans = [make_plan(kernel, operands(kernel, (300, 100), ("plain", "strided")[k % 2]))]
    else:
        chosen = SHAPES if EVERYTHING else [SHAPES[k % len(SHAPES)]]
        plans = [make_plan(kernel, operands(kernel, shape, layout)) for shape, layout in chosen]
    if name.startswith("updates.") and (EVERYTHING or k % 2):
        plans = [*plans[int(not EVERYTHING) :], plan_many(kernel, [operands(kernel, (64, 64))] * 2)]
    return [launch.form for plan in plans for launch in plan.launches]


@pytest.fixture(scope="module")
def texts():
    return list(functions())


@needs_nvrtc
@pytest.mark.timeout(3000 if EVERYTHING else 120)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_every_kernel_compiles_and_spills_nothing(arch, texts):
    if int(arch[3:]) not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc.version()} does not know {arch}")
    part = ("sm_80", "sm_90", "sm_100").index(arch)
    mine = texts if EVERYTHING else texts[part::3]
    for k in range(0, len(mine), 100):
        made = nvrtc.compile_unit(unit([text for _, text in mine[k : k + 100]]), arch)
        assert set(made.functions) == {name for name, _ in mine[k : k + 100]}
        assert made.image[:4] == b"\x7fELF"
        for name, used in made.functions.items():
            assert used.spills == 0, (name, used)
            assert used.stack == 0 or any(word in name for word in MAY_USE_STACK), (name, used)
            # Where each element has an address of its own, four of the 1,560 need nearly all.
            many = EVERYTHING or any(word in name for word in MAY_USE_MANY)
            most = 255 if many else 128 if "_c_" in name else 200
            assert used.registers <= most, (name, used)


@needs_nvrtc
@pytest.mark.timeout(600)
def test_every_hand_written_code_compiles_and_spills_nothing():
    """Each for one architecture after the other."""
    archs = [f"sm_{a}" for a in (80, 90, 100) if a in nvrtc.architectures()]
    steps = {}
    for code, args, _ in code_cases():
        arrays, _ = code.split(args)
        for step in code.plan([Operand.of(a) for a in arrays]).launches:
            steps[step.name] = step
    for k, arch in enumerate(archs):
        mine = [s for n, s in enumerate(steps.values()) if EVERYTHING or n % len(archs) == k]
        helpers = dict.fromkeys(h for step in mine for h in step.helpers)
        made = nvrtc.compile_unit(unit([*helpers, *(s.text() for s in mine)]), arch)
        assert {s.name for s in mine} <= set(made.functions)
        for name, used in made.functions.items():
            if name in steps:
                checks = any(
                    word in name
                    for word in ("take", "gather", "add_rows", "within", "poisson", "bernoulli_f")
                )
                assert used.spills == 0, (name, used)
                assert used.stack == 0 or checks, (name, used)  # they may print
                assert used.registers <= 255, (name, used)
                assert used.registers * steps[name].block <= 1 << 16, (name, used)


@needs_nvrtc
def test_contiguous_arrays_are_read_and_written_by_16_bytes():
    for dtype, pieces in (("float32", 1), ("bfloat16", 1), ("float64", 1)):
        kernel = fused_kernels(dtype)["elementwise.relu"]
        (launch,) = make_plan(kernel, operands(kernel, (64, 64))).launches
        text = unit([function(kernel, launch.form)[0]])
        ptx = nvrtc.compile_unit(text, "compute_80").image.decode()
        word = ".v2.f64" if dtype == "float64" else ".v4."
        loads = [line for line in ptx.splitlines() if "ld.global" in line and word in line]
        stores = [line for line in ptx.splitlines() if "st.global" in line and word in line]
        assert len(loads) == len(stores) == pieces


@needs_nvrtc
def test_what_was_compiled_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = 'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1; }'
    first = nvrtc.compile_unit(text, "sm_90")
    assert first.functions["fill"].registers > 0
    monkeypatch.setattr(nvrtc, "_compile", None)
    assert nvrtc.compile_unit(text, "sm_90") == first


@needs_nvrtc
def test_an_error_shows_the_line():
    text = 'extern "C" __global__ void fill(float* x) {\n  x[0] = what;\n}'
    with pytest.raises(nvrtc.CompileError) as error:
        nvrtc.compile_unit(text, "sm_90", "fill.cu")
    assert 'fill.cu(2): error: identifier "what" is undefined\n' in str(error.value)
    assert "      2    x[0] = what;\n" in str(error.value)


@needs_nvrtc
def test_a_device_gets_its_own_code_or_that_of_the_newest_before_it():
    assert nvrtc.target((9, 0)) == "sm_90"
    assert nvrtc.target((99, 0)) == f"compute_{nvrtc.architectures()[-1]}"
    with pytest.raises(nvrtc.Unavailable, match="the device has 11; install an older NVRTC"):
        nvrtc.target((1, 1))


def test_what_the_assembler_says_is_understood():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 132 bytes smem, 372 bytes cmem[0]
ptxas info    : Function properties for other
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 9 registers, used 0 barriers, 372 bytes cmem[0]
"""
    assert nvrtc.parse_log(log) == {
        "k": nvrtc.Resources(10, 24, 16, 132),
        "other": nvrtc.Resources(9, 0, 0, 0),
    }


def test_without_the_binding_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    assert "pip install cuda-bindings" in nvrtc.why_unavailable()
    with pytest.raises(nvrtc.Unavailable):
        nvrtc.compile_unit("", "sm_90")


def test_nothing_of_cuda_is_loaded_before_it_is_asked_for():
    program = "import sys, disttrain, disttrain.backends.program; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    names = done.stdout.split()
    assert "disttrain.backends.program" in names
    assert not [n for n in names if n.split(".")[0] in ("cuda", "cupy", "nccl")]
    cuda = {n for n in names if n.startswith("disttrain.backends.cuda")}
    assert cuda <= {"disttrain.backends.cuda", "disttrain.backends.cuda.registration"}
