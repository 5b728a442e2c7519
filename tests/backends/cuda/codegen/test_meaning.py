"""Generated CUDA C against the kernels' meaning by numpy: run by a host compiler, without a GPU."""

import os

import ml_dtypes
import numpy as np
import pytest
from standins import cuda_on_host as host

from disttrain.backends.lang import expr as E
from disttrain.backends.lang import interpret
from disttrain.backends.lang.expr import cast, index, load, var, where
from disttrain.backends.lang.kernel import (
    COMPUTE,
    Array,
    Kernel,
    Let,
    Loop,
    Put,
    Reduce,
    Scalar,
    Store,
    elementwise,
)
from support.cases.kernel_catalogue import fused_kernels, primitive_kernels
from support.cases.random_kernels import Draw

pytestmark = pytest.mark.skipif(host.COMPILER is None, reason="there is no C++ compiler here")

TYPES = tuple(COMPUTE)
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-12}


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else np.dtype(name)


def numbers(rng, name, shape, low=0.3, high=1.7):
    """Values of that type in memory with guards around it."""
    if name == "bool":
        return rng.random(shape) > 0.5
    if "int" in name:
        return rng.integers(0, 20, shape).astype(name)
    return rng.uniform(low, high, shape).astype(dtype(name))


def layouts(array):
    """The same values lying otherwise, by name; ``shifted`` is not aligned to 16 bytes."""
    yield "plain", array
    if array.ndim > 1:
        yield "transposed", np.ascontiguousarray(array.T).T
    wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2 + 3), array.dtype)
    wide[..., 3::2] = array
    yield "gaps", wide[..., 3::2]
    yield "backwards", np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    memory = np.zeros(array.size + 1, array.dtype)
    memory[1:] = array.reshape(-1)
    yield "shifted", memory[1:].reshape(array.shape)


class Run:
    """Cases that are compiled together, run, and held against numpy."""

    def __init__(self):
        self.cases = []

    def add(self, kernel, args, label="", sets=None):
        case = host.Case(kernel, *args, sets=sets)
        wanted = [[_apart(a) for a in one] for one in case.sets]
        self.cases.append((case, wanted, f"{kernel.name} {label}"))
        return case

    def check(self, folder, exact=False):
        library = host.compiled([case for case, _, _ in self.cases], folder)
        for case, wanted, label in self.cases:
            for want in wanted:
                _interpret(case.kernel, want)
            host.run(library, case)
            for args, want in zip(case.sets, wanted):
                for p, a, w in zip(case.kernel.params, args, want):
                    if isinstance(p, Array):
                        _same(a, w, f"{label}: {p.name}", None if exact else case.kernel)


def _interpret(kernel, args):
    """Run by numpy; where elements have positions in the whole, on arrays of one row."""
    if not kernel.flat:
        interpret.run(kernel, tuple(args))
        return
    full = [a.shape for p, a in zip(kernel.params, args) if getattr(p, "space", "") == "full"]
    shape = np.broadcast_shapes(*full)
    rows = [
        np.array(np.broadcast_to(a, shape)).reshape(-1) if getattr(p, "space", "") == "full" else a
        for p, a in zip(kernel.params, args)
    ]
    interpret.run(kernel, tuple(rows))
    for p, a, row in zip(kernel.params, args, rows):
        if isinstance(p, Array) and p.writes:
            a[...] = row.reshape(a.shape)


def _apart(a):
    return a.copy(order="K") if isinstance(a, np.ndarray) else a


def _same(got, want, label, kernel):
    """To the bit without ``kernel``, else to what the types that it computes in can hold."""
    assert got.dtype == want.dtype, label
    if kernel is None or got.dtype.name not in TOLERANCE:
        np.testing.assert_array_equal(got, want, err_msg=label)
        return
    tolerance = TOLERANCE[got.dtype.name]
    tolerance = max(tolerance, *(TOLERANCE.get(COMPUTE[p.dtype], 0) for p in kernel.params))
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = np.abs(want[np.isfinite(want)]).max(initial=1.0)
    np.testing.assert_allclose(
        got, want, rtol=4 * tolerance, atol=4 * tolerance * scale, err_msg=label
    )


def arguments(rng, kernel, shape):
    """Arguments for any kernel of the catalogue."""
    args = []
    for p in kernel.params:
        if isinstance(p, Scalar):
            args.append(-100.0 if p.name == "ignore" else float(rng.uniform(0.1, 0.9)))
            continue
        there = {"full": shape, "row": shape[:-1], "col": shape[-1:], "one": (1,)}[p.space]
        if p.name == "target":
            args.append(rng.integers(0, shape[-1], there))
        else:
            args.append(numbers(rng, p.dtype, there))
    return args


def test_every_fused_kernel_and_every_primitive(tmp_path):
    rng, run = np.random.default_rng(0), Run()
    kernels = [*fused_kernels("float32").items(), *primitive_kernels("float32").items()]
    kernels += [*fused_kernels("bfloat16").items()][::3]
    for k, (name, kernel) in enumerate(kernels):
        shape = (9, (5, 70, 300, 1100)[k % 4]) if not kernel.flat else (3, 67)
        run.add(kernel, arguments(rng, kernel, shape), name)
    run.check(tmp_path)


def test_every_type_is_loaded_converted_and_stored(tmp_path):
    rng, run = np.random.default_rng(1), Run()
    for source in TYPES:
        for target in TYPES:
            x = numbers(rng, source, (37,), 0, 30)
            kernel = elementwise(
                f"from_{source}", cast(var("x"), target), (Array("x", source),), target
            )
            run.add(kernel, [x, np.zeros(37, dtype(target))], f"{source} {target}")
    run.check(tmp_path, exact=True)


def test_any_layout_gives_the_same_bits(tmp_path):
    rng, run = np.random.default_rng(2), Run()
    add = elementwise(
        "add3", lambda a, b: a + 2 * b, (Array("a", "float32"), Array("b", "float32")), "float32"
    )
    softmax = fused_kernels("float32")["softmax._SOFTMAX"]
    square = fused_kernels("float32")["elementwise._NORM_SQUARED"]
    a, b = rng.standard_normal((2, 6, 5, 34)).astype(np.float32)
    big = rng.standard_normal((70, 300)).astype(np.float32)
    softmaxes, squares = [], []
    for name, x in layouts(a):
        run.add(add, [x, b, np.zeros_like(a)], name)
        run.add(add, [x, b[0, :1], np.zeros(a.shape[::-1], np.float32).T], f"{name} broadcast")
        run.add(add, [b[:, :, :1], x, np.zeros_like(x)], f"{name} column")
        softmaxes.append(run.add(softmax, [x, np.zeros_like(a)], name))
    for name, x in layouts(big):
        squares.append(run.add(square, [x, np.zeros(1)], name))
    gaps = np.full((8, 10), -1.0, np.float32)
    run.add(add, [np.ones((4, 5), np.float32), np.float32([[2]]), gaps[::2, ::2]], "gaps")
    run.check(tmp_path)
    assert (gaps[::2, ::2] == 5).all() and (gaps == -1).sum() == 60
    for cases in (softmaxes, squares):
        results = [c.sets[0][-1].tobytes() for c in cases]
        assert len(set(results)) == 1


@pytest.mark.parametrize("n", [1, 3, 4, 5, 1023, 1024, 1025, 2500])
def test_every_length_is_done_to_the_end_and_not_beyond(n, tmp_path_factory, lengths):
    memory = lengths[n]
    np.testing.assert_array_equal(memory[20 : 20 + n], 3 * np.arange(n))
    assert (memory[:20] == 7).all() and (memory[20 + n :] == 7).all()


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    kernel = elementwise("triple", lambda a: 3 * a, (Array("a", "float32"),), "float32")
    run, memories = Run(), {}
    for n in (1, 3, 4, 5, 1023, 1024, 1025, 2500):
        memories[n] = np.full(n + 40, 7, np.float32)
        run.add(kernel, [np.arange(n, dtype=np.float32), memories[n][20 : 20 + n]])
    run.check(tmp_path_factory.mktemp("lengths"))
    return memories


FORMULAS = [
    lambda a, b: where(a > b, a, b) + where(E.eq(a, a), 1.0, 0.0),
    lambda a, b: E.max(a, b) * E.min(a, 0.5),
    lambda a, b: where((a < 0) & (b < 0), a, where((a >= 1) | ~(b > 0), b, 3.0)),
    lambda a, b: E.floor(a * 10) + E.ceil(b * 10) - abs(a),
    lambda a, b: cast(cast(a * 100, "int32"), "float32") + cast(a > 0, "float32"),
    lambda a, b: where(E.isnan(a / (b - b)), 1.0, 2.0),
    lambda a, b: E.fma(a, b, 1.0) + a / b,
    lambda a, b: cast(a, "float64") * b + index(),
    lambda a, b: E.pow(abs(a), b) + E.log1p(abs(a)) - E.expm1(b) * E.erf(a),
    lambda a, b: E.rsqrt(abs(a) + 1) + E.sin(a) * E.cos(b) + E.tanh(a) - E.sigmoid(b),
    lambda a, b: load("a", index() * 2) + where(E.isnan(load("b", 3 - index())), 0.0, a),
    lambda a, b: cast(cast(a, "bfloat16"), "float32") + cast(cast(b, "float16"), "float32"),
    lambda a, b: where(E.eq(cast(a, "int8") * 100, 100), 1e300, -(3 - a)) + float("-inf") * abs(b),
]


def test_expressions(tmp_path):
    rng, run = np.random.default_rng(3), Run()
    for k, formula in enumerate(FORMULAS):
        for name in ("float32", "float64"):
            a, b = rng.standard_normal((2, 53)).astype(name)
            kernel = elementwise(f"f{k}", formula, (Array("a", name), Array("b", name)), name)
            run.add(kernel, [a, b, np.zeros_like(a)], f"formula {k} {name}")
            run.add(kernel, [a[::-1], b, np.zeros_like(a)], f"formula {k} {name} backwards")
    with np.errstate(all="ignore"):
        run.check(tmp_path)


def test_integers_wrap_and_nan_goes_through(tmp_path):
    run = Run()
    for name in ("int32", "int64"):
        low, high = np.iinfo(name).min, np.iinfo(name).max
        a = np.array([low, high, -1, 7], name)
        fn = lambda a: abs(a) * 3 - E.min(-a, 5) + E.max(a, 0) + E.fma(a, a, a)
        run.add(elementwise("wrap", fn, (Array("a", name),), name), [a, a * 0])
    x = np.array([np.nan, 1, -1, -0.0, np.inf], np.float32)
    for fn in (lambda x: E.max(x, 0.0), lambda x: E.min(0.5, x), lambda x: E.max(x, x)):
        run.add(elementwise("keep", fn, (Array("x", "float32"),), "float32"), [x, x * 0])
    run.check(tmp_path, exact=True)


STATISTICS = Kernel(
    "statistics",
    (
        Array("x", "float32"),
        Array("t", "int64", "row"),
        Array("w", "float32", "col"),
        Scalar("k"),
        Array("high", "float32", "row", writes=True),
        Array("low", "float32", "row", writes=True),
        Array("pick", "float16", "row", writes=True),
        Array("out", "float32", writes=True),
        Array("cols", "float32", "col", writes=True),
        Array("all", "float64", "one", writes=True),
    ),
    (
        Loop((Reduce("a", "max", var("x")), Reduce("b", "min", var("x") * var("w")))),
        Let("span", var("a") - var("b") + var("k")),
        Loop((Store("out", var("x") / var("span")), Store("cols", var("x") * var("w"), add=True))),
        Loop((Reduce("s", "sum", var("out") + load("out", 1)),)),
        Put("high", var("a")),
        Put("low", var("low") + var("b"), add=True),
        Put("pick", load("x", var("t")) + var("low")),
        Put("all", var("s"), add=True),
        Loop((Store("out", var("s"), add=True),)),
    ),
)


def statistics(rng, x):
    rows, cols = x.shape[:-1], x.shape[-1]
    ones = [np.ones(rows, np.float32), np.ones(rows, np.float32), np.ones(rows, np.float16)]
    out = np.zeros(x.shape, np.float32)
    sums = [np.ones(cols, np.float32), np.ones(1)]
    t, w = rng.integers(0, cols, rows), rng.standard_normal(cols).astype(np.float32)
    return [x, t, w, 2.0, *ones, out, *sums]


def test_row_kernels(tmp_path):
    rng, run = np.random.default_rng(4), Run()
    for shape in [(1, 3), (4, 7), (3, 2, 65), (500, 9), (5, 1300), (2, 25000)]:
        x = rng.standard_normal(shape).astype(np.float32)
        for name, lying in list(layouts(x))[: 5 if x.size < 10000 else 1]:
            run.add(STATISTICS, statistics(rng, lying), f"{shape} {name}")
    run.check(tmp_path)


FLAT = Kernel(
    "whole",
    (
        Array("x", "float32"),
        Scalar("k", "int64"),
        Array("y", "float16", writes=True),
        Array("total", "float64", "one", writes=True),
        Array("count", "int32", "one", writes=True),
    ),
    (
        Let("twice", var("k") * 2),
        Loop((Reduce("most", "maxnum", var("x")), Reduce("odd", "max", var("x") > 2.5))),
        Let("shift", var("most") + var("twice")),
        Put("count", cast(var("odd"), "int32") + var("count")),
        Loop((Store("y", var("x") - var("shift") + index()), Reduce("s", "sum", var("x")))),
        Loop((Store("y", load("y", index()) + var("s") + var("count")),)),
        Put("total", cast(var("s") + var("shift"), "float64"), add=True),
    ),
    flat=True,
)


def test_flat_kernels_that_fold(tmp_path):
    rng, run = np.random.default_rng(5), Run()
    for shape in [(7,), (3, 50), (130, 170)]:
        for name, x in layouts(rng.standard_normal(shape).astype(np.float32)):
            y = np.zeros_like(x, np.float16)
            run.add(FLAT, [x, 3.0, y, np.ones(1), np.ones(1, np.int32)], f"{shape} {name}")
    run.check(tmp_path)


def test_reductions_treat_nan_as_they_say(tmp_path):
    rng, run = np.random.default_rng(6), Run()
    x = rng.standard_normal((30, 75)).astype(np.float32)
    x[np.arange(30), np.arange(30) * 2] = np.nan
    x[3] = np.nan
    for op in ("max", "min", "maxnum", "sum"):
        params = (Array("x", "float32"), Array("out", "float32", "row", writes=True))
        kernel = Kernel(op, params, (Loop((Reduce("r", op, var("x")),)), Put("out", var("r"))))
        run.add(kernel, [x, np.zeros(30, np.float32)], op)
    run.check(tmp_path, exact=True)


def test_random_kernels_on_random_layouts(tmp_path):
    run = Run()
    shapes = [(1, 1), (3, 7), (4, 130), (2, 3, 40), (70, 5), (2, 700)]
    for seed in range(18 * int(os.environ.get("KERNELS", "1"))):
        draw = Draw(seed)
        shape = shapes[seed % len(shapes)]
        run.add(draw.kernel, draw.arguments(shape), f"{shape}\n{draw.kernel}\n")
    run.check(tmp_path)


def test_many_arrays_in_one_launch(tmp_path):
    rng, run = np.random.default_rng(7), Run()
    sizes = [(1,), (3, 5), (64, 33), (0, 4), (5000,), *[(k,) for k in range(1, 50)]]
    for name in ("float32", "bfloat16"):
        kernel = fused_kernels(name)["updates.ADAM[True]"]
        numbers_of = [float(x) for x in rng.uniform(0.1, 0.9, len(kernel.scalars))]
        sets = [
            [*[numbers(rng, name, s) for _ in range(len(kernel.arrays))], *numbers_of]
            for s in sizes
        ]
        transposed = [np.asfortranarray(numbers(rng, name, (7, 6))) for _ in kernel.arrays]
        case = run.add(kernel, [], sets=[*sets, [*transposed, *numbers_of]])
        assert len(case.plan.launches) == 2
    run.check(tmp_path)
