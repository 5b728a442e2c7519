"""Every rule of every primitive, by numbers: forward, vjp, jvp, second order, shape, batch,
scalar expression. One test per primitive and rule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain import func
from disttrain.backends.lang import expr as ex
from disttrain.backends.lang.interpret import interpret
from disttrain.backends.null import NullArray
from disttrain.core import Tensor, grad, wrap
from disttrain.core.types import dtypes
from disttrain.ops.declare import REGISTRY
from support.cases.table import (
    EXEMPT,
    NAMES,
    call,
    floating,
    many,
    samples,
    settle,
    smooth_outputs,
    tensor,
)

SMOOTH = [n for n in NAMES if REGISTRY[n].differentiable]
SHAPED = [n for n in NAMES if REGISTRY[n].shape]
EXPRESSED = [n for n in NAMES if REGISTRY[n].expr]
STEP = 1e-6


def weights(outs, seed=7):
    """A fixed cotangent for every output."""
    rng = np.random.default_rng(seed)
    return [wrap(rng.normal(size=tuple(o.shape))) for o in outs]


def pulled(prim, args, params, wanted, create_graph=False):
    """(inputs, gradients of the weighted sum of the outputs) for the arguments in ``wanted``."""
    inputs = [tensor(a) for a in args]
    for i in wanted:
        inputs[i].requires_grad_()
    outs = call(prim, inputs, params)
    live = [outs[k] for k in smooth_outputs(prim, outs)]
    live = [o for o in live if o.requires_grad]
    chosen = [inputs[i] for i in wanted]
    zeros = [wrap(np.zeros(tuple(x.shape))) for x in chosen]
    if not live:
        return chosen, zeros
    rows = grad(live, chosen, weights(live), create_graph=create_graph, allow_unused=True)
    return chosen, [z if r is None else r for r, z in zip(rows, zeros, strict=True)]


def differences(fn, args, i, eps=STEP):
    """Central differences of the number ``fn(args)`` by every element of argument ``i``."""
    out = np.zeros(args[i].shape)
    for at in np.ndindex(*out.shape):
        sides = []
        for step in (eps, -eps):
            moved = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
            moved[i][at] += step
            sides.append(fn(moved))
        out[at] = (sides[0] - sides[1]) / (2 * eps)
    return out


def nudged(name, args, params, moves, step):
    """The smooth outputs, with some arguments moved by ``step`` times ``moves[i]``."""
    full = [a + step * moves[i] if i in moves else a for i, a in enumerate(args)]
    outs = many(REGISTRY[name].compute(settle(name, full, params), params))
    return [outs[k] for k in smooth_outputs(REGISTRY[name], outs)]


def near(got, want, tol=1e-5):
    got = got.array if isinstance(got, Tensor) else got
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


def test_every_primitive_is_in_the_table():
    assert set(NAMES) | set(EXEMPT) == set(REGISTRY)
    for name in NAMES:
        assert samples(name), name


@pytest.mark.parametrize("name", NAMES)
def test_forward(name):
    """On Tensors what numpy computes; on other layouts of memory the same; inputs untouched."""
    prim = REGISTRY[name]
    for args, params in samples(name):
        want = many(prim.compute(args, params))
        inputs = [tensor(a) for a in args]
        for got, w in zip(call(prim, inputs, params), want, strict=True):
            assert isinstance(got, Tensor) and not got.requires_grad
            np.testing.assert_array_equal(got.array, w)
        for x, a in zip(inputs, args, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(x.array, a)
        strided = [
            wrap(np.asfortranarray(np.repeat(a, 2, -1))[..., ::2])
            if isinstance(a, np.ndarray) and a.ndim
            else tensor(a)
            for a in args
        ]
        for got, w in zip(call(prim, strided, params), want, strict=True):
            np.testing.assert_allclose(got.array, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_vjp(name):
    """Against central differences; alone for every argument; on Tensors as on arrays."""
    prim = REGISTRY[name]
    for args, params in samples(name):
        places = floating(prim, args)

        def number(values, params=params):
            outs = many(prim.compute(settle(name, values, params), params))
            live = [outs[k] for k in smooth_outputs(prim, outs)]
            return sum(float((o * w.array).sum()) for o, w in zip(live, weights(live), strict=True))

        want = [differences(number, args, i) for i in places]
        for got, w in zip(pulled(prim, args, params, places)[1], want, strict=True):
            near(got, w)
        for got, w in zip(pulled(prim, args, params, places, True)[1], want, strict=True):
            near(got, w)
        for i, w in zip(places, want, strict=True):
            near(pulled(prim, args, params, [i])[1][0], w)


@pytest.mark.parametrize("name", SMOOTH)
def test_jvp(name):
    """Against central differences, and the transpose of the vjp: <w, J t> = <J' w, t>."""
    prim = REGISTRY[name]
    rng = np.random.default_rng(1)
    for args, params in samples(name):
        places = floating(prim, args)
        if not places or not smooth_outputs(prim, call(prim, [tensor(a) for a in args], params)):
            continue
        chosen = [places, *([i] for i in places)] if len(places) > 1 else [places]
        for wanted in chosen:
            moves = {i: rng.normal(size=args[i].shape) for i in wanted}

            def run(*values, wanted=wanted, args=args, params=params):
                full = [tensor(a) for a in args]
                for i, v in zip(wanted, values, strict=True):
                    full[i] = v
                outs = call(prim, full, params)
                return tuple(outs[k] for k in smooth_outputs(prim, outs))

            values = [args[i] for i in wanted]
            outs, moved = func.jvp(
                run, tuple(map(tensor, values)), tuple(wrap(moves[i]) for i in wanted)
            )
            up, down = (nudged(name, args, params, moves, s) for s in (STEP, -STEP))
            for got, u, d in zip(moved, up, down, strict=True):
                near(got, (u - d) / (2 * STEP))
            rows = pulled(prim, args, params, wanted)[1]
            left = sum(
                float((w.array * m.array).sum()) for w, m in zip(weights(outs), moved, strict=True)
            )
            right = sum(
                float((r.array * moves[i]).sum()) for r, i in zip(rows, wanted, strict=True)
            )
            near(left, right, 1e-9)


@pytest.mark.parametrize("name", SMOOTH)
def test_second_order(name):
    """The gradient of the vjp, by the arguments and by the cotangent, against differences."""
    prim = REGISTRY[name]
    for args, params in samples(name):
        places = floating(prim, args)
        if not places:
            continue

        def slope(values, params=params, places=places):
            rows = pulled(prim, settle(name, values, params), params, places)[1]
            return sum(float((r.array * w.array).sum()) for r, w in zip(rows, weights(rows, 8)))

        inputs, rows = pulled(prim, args, params, places, True)
        total = sum((r * w).sum() for r, w in zip(rows, weights(rows, 8), strict=True))
        if total.requires_grad:
            got = grad(total, inputs, allow_unused=True)
        else:
            got = [None] * len(inputs)
        for i, g in zip(places, got, strict=True):
            want = differences(slope, args, i)
            near(np.zeros(want.shape) if g is None else g, want)


@pytest.mark.parametrize("name", SHAPED)
def test_shape(name):
    """Shape and type as predicted, in every floating type; gradients without data too."""
    prim = REGISTRY[name]
    for args, params in samples(name):
        for kind in ("f8", "f4"):
            typed = tuple(
                a.astype(kind) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a
                for a in args
            )
            nulls = tuple(
                NullArray(a.shape, a.dtype) if isinstance(a, np.ndarray) else a for a in typed
            )
            if not any(isinstance(a, NullArray) for a in nulls):
                continue
            want = [o.meta() for o in call(prim, [tensor(a) for a in typed], params)]
            predicted = call(
                prim, [wrap(a) if isinstance(a, NullArray) else a for a in nulls], params
            )
            assert [o.meta() for o in predicted] == want
            places = floating(prim, typed)
            if prim.differentiable and places:
                _null_gradients(prim, typed, nulls, params, places)


def _null_gradients(prim, typed, nulls, params, places):
    """Gradients without data have the arguments' shapes and types, and come where real ones do."""
    found = []
    for values in (typed, nulls):
        inputs = [wrap(a) if isinstance(a, NullArray) else tensor(a) for a in values]
        for i in places:
            inputs[i].requires_grad_()
        outs = call(prim, inputs, params)
        live = [outs[k] for k in smooth_outputs(prim, outs) if outs[k].requires_grad]
        seeds = [o.detach() * 1 for o in live]
        rows = grad(live, [inputs[i] for i in places], seeds, allow_unused=True)
        found.append([None if r is None else r.meta() for r in rows])
    for i, real, null in zip(places, *found, strict=True):
        assert real == null
        assert real is None or real == (typed[i].shape, typed[i].dtype)


# What numpy computes for complex numbers but has no meaning or no rule for them: comparisons order
# complex numbers by their real part first, batch_norm's variance is of real numbers, the phases of
# svd's vectors are free, and Hermitian matrices are not drawn here.
REAL = {
    "amax", "amin", "batch_norm", "cast", "clip", "cross_entropy_backward", "max_pool",
    "max_pool_pick", "max_pool_spread", "svd", "cholesky", "eigh",
}  # fmt: skip


def _complex(name):
    """(args, params, outputs) with complex arguments; where the primitive refuses them, nothing."""
    prim, rng = REGISTRY[name], np.random.default_rng(2)
    refused = name in REAL or (prim.takes is not None and "c" not in prim.takes)
    for args, params in () if refused else samples(name):
        places = floating(prim, args)
        turned = tuple(
            np.asarray(a + 0.3j * rng.normal(size=a.shape)) if i in places else a
            for i, a in enumerate(args)
        )
        try:
            outs = many(prim.compute(turned, params))
        except TypeError:
            continue
        yield turned, params, [k for k in range(len(outs)) if k not in prim.nondiff_outputs]


COMPLEX = [n for n in SMOOTH if any(True for _ in _complex(n))]


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_vjp(name):
    """dL/dRe + i dL/dIm for a real L, by central differences in both directions."""
    prim, rng = REGISTRY[name], np.random.default_rng(3)
    for args, params, smooth in _complex(name):
        outs = many(prim.compute(args, params))
        seeds = [
            rng.normal(size=outs[k].shape) + 1j * rng.normal(size=outs[k].shape)
            if np.iscomplexobj(outs[k])
            else rng.normal(size=outs[k].shape)
            for k in smooth
        ]

        def number(values, params=params, seeds=seeds, smooth=smooth):
            outs = many(prim.compute(values, params))
            return sum(
                float((np.conj(w) * outs[k]).sum().real) for k, w in zip(smooth, seeds, strict=True)
            )

        places = floating(prim, [a.real if isinstance(a, np.ndarray) else a for a in args])
        inputs = [tensor(a) for a in args]
        for i in places:
            inputs[i].requires_grad_()
        outs = call(prim, inputs, params)
        rows = grad(
            [outs[k] for k in smooth], [inputs[i] for i in places],
            [wrap(np.asarray(w)) for w in seeds], create_graph=True,
        )  # fmt: skip
        for i, r in zip(places, rows, strict=True):
            real = differences(number, args, i)
            turned = list(args)

            def rotated(values, i=i, args=args):
                values[i] = args[i] + 1j * (values[i] - args[i])
                return number(values)

            near(r, real + 1j * differences(rotated, turned, i), 1e-4)


NARROW = [n for n in SMOOTH if REGISTRY[n].elementwise or n in ("sum", "mean", "matmul", "linear")]


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", NARROW)
def test_narrow_types(name, kind):
    """Results and gradients keep the type, and are those of float64 to its precision."""
    prim, kind = REGISTRY[name], getattr(dtypes, kind).np
    tol = {4: 1e-5}.get(kind.itemsize, 4e-2 if kind.kind == "V" else 6e-3)
    refused = " " in (prim.takes or "") and kind not in map(np.dtype, prim.takes.split())
    for args, params in samples(name):
        if "dtype" in params:
            continue
        if refused:
            with pytest.raises(TypeError, match=name):
                call(prim, [tensor(a.astype(kind)) for a in args], params)
            continue
        typed = [
            a.astype(kind) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a
            for a in args
        ]
        wide = [a.astype("f8") if a is not b else a for a, b in zip(typed, args, strict=True)]
        places = floating(prim, args)
        found = []
        for values in (typed, wide):
            inputs = [tensor(a) for a in values]
            for i in places:
                inputs[i].requires_grad_()
            outs = call(prim, inputs, params)
            wanted = [inputs[i] for i in places]
            rows = grad([o.sum() for o in outs], wanted, allow_unused=True) if wanted else ()
            found.append((outs, rows))
        for got, want in zip(*found[0:2], strict=True):
            for g, w in zip(got, want, strict=True):
                if w is None:
                    continue
                assert g.array.dtype == kind
                np.testing.assert_allclose(g.array.astype("f8"), w.array, rtol=tol, atol=tol)


def _patterns(args):
    """Which arguments have a batch dimension and where: in front, in the middle, last, none."""
    choices = [
        (None, *sorted({0, a.ndim // 2, a.ndim})) if isinstance(a, np.ndarray) else (None,)
        for a in args
    ]
    found = [p for p in itertools.product(*choices) if any(d is not None for d in p)]
    return found[:: max(1, len(found) // 12)]


def _variations(a, size, rng):
    """Other numbers of the same kind: floats scaled a little, integers and flags rolled."""
    if a.dtype.kind == "f":
        return [a * s for s in rng.uniform(0.9, 1.1, size)]
    return [np.roll(a, k, -1) if a.ndim else a for k in range(size)]


def _rows(name, args, params, pattern, size, rng):
    """The arguments of each example, and the pattern with what follows from mapped ones mapped."""
    columns = [
        [a] * size if d is None else _variations(a, size, rng)
        for a, d in zip(args, pattern, strict=True)
    ]
    rows = [settle(name, [c[k] for c in columns], params) for k in range(size)]
    same = [all(r[i] is a or np.array_equal(r[i], a) for r in rows) for i, a in enumerate(args)]
    dims = [0 if d is None and not s else d for d, s in zip(pattern, same, strict=True)]
    return rows, dims


UNBATCHED = {("cross_entropy", 2), ("cross_entropy_backward", 3)}  # refused: class weights


@pytest.mark.parametrize("name", NAMES)
def test_batch(name):
    """vmap is the loop, for every choice of mapped arguments and of their batch dimensions."""
    prim, size = REGISTRY[name], 3
    rng = np.random.default_rng(0)
    for args, params in samples(name):
        for pattern in _patterns(args):
            if any(d is not None and (name, i) in UNBATCHED for i, d in enumerate(pattern)):
                continue
            rows, pattern = _rows(name, args, params, pattern, size, rng)
            mapped = [i for i, d in enumerate(pattern) if d is not None]

            def run(*values, args=args, params=params, mapped=mapped):
                full = [tensor(a) for a in args]
                for i, v in zip(mapped, values, strict=True):
                    full[i] = v
                return call(prim, full, params)

            stacked = [wrap(np.stack([r[i] for r in rows], pattern[i])) for i in mapped]
            got = func.vmap(run, in_dims=tuple(pattern[i] for i in mapped))(*stacked)
            want = [many(prim.compute(r, params)) for r in rows]
            for j, g in enumerate(got):
                column = np.stack([w[j] for w in want])
                np.testing.assert_allclose(g.array, column, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", EXPRESSED)
def test_expression(name):
    """The scalar expression for kernels computes what the primitive does."""
    prim = REGISTRY[name]
    expression = ex.trace(prim.expr, *prim.args)
    for args, params in samples(name):
        arrays = {n: np.asarray(a) for n, a in zip(prim.args, args, strict=True)}
        want = prim.compute(args, params)
        np.testing.assert_allclose(interpret(expression, arrays), want, rtol=1e-12, atol=1e-14)
