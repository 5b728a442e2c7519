"""Are the gradients right? Compare them with central differences, in float64.

A complex number counts as its real and imaginary part: both Jacobians are matrices of real numbers,
[parts of the output, parts of the input].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.backward.autograd import grad
from ..core.classes import values_of
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor, beside, wrap
from ..errors import AutogradError
from ..func.jvp import jvp
from ..func.vmap import vmap
from ..ops.functions.creation.create import zeros_like
from ..ops.functions.sparse.structured import of_values
from ..trace import warn
from . import forward_ad


class GradcheckError(AutogradError):
    """A gradient does not agree with differences."""


@dataclass(frozen=True)
class Options:
    """What to compare, and how near it must be."""

    eps: float = 1e-6
    atol: float = 1e-5
    rtol: float = 1e-3
    nondet_tol: float = 0.0
    check_undefined_grad: bool = True
    check_grad_dtypes: bool = False
    check_batched_grad: bool = False
    check_batched_forward_grad: bool = False
    check_forward_ad: bool = False
    check_backward_ad: bool = True
    fast_mode: bool = False
    masked: bool | None = None


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, raise_exception: bool = True, **options: Any
) -> bool:
    """Whether the derivatives of ``func`` at ``inputs`` agree with differences (``eps``, ``atol``,
    ``rtol``).

    Checked are also: that running backward twice gives the same (``nondet_tol``), that gradients
    of zero give zero, types (``check_grad_dtypes``), vmap over cotangents
    (``check_batched_grad``) and forward mode (``check_forward_ad``,
    ``check_batched_forward_grad``). Outputs are checked one at a time, so that the others'
    gradients are missing, whatever ``check_undefined_grad`` says; ``fast_mode`` and ``masked``
    change nothing: derivatives of sparse tensors are those of their values. Raises
    ``GradcheckError`` naming input, output and element, or returns False.
    """
    func, inputs = of_values(func, inputs)
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    chosen = Options(**options)
    checked = [i for i, t in enumerate(given) if isinstance(t, Tensor) and t.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them "
            "have requires_grad=True."
        )
    for i in checked:
        if given[i].dtype.itemsize // (1 + given[i].dtype.is_complex) < 8:
            warn(
                f"gradcheck: Input #{i} requires gradient and is not a double precision floating "
                f"point or complex ({given[i].dtype!r}); differences are too coarse for it, and "
                "the check will likely fail",
            )
    try:
        with enable_grad():
            _Check(func, given, checked, chosen).run()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _outputs(func: Callable, given: Sequence) -> list[Tensor]:
    out = func(*given)
    out = out if isinstance(out, (tuple, list)) else (out,)
    return [
        o
        for o in out
        if isinstance(o, Tensor) and (o.dtype.is_floating_point or o.dtype.is_complex)
    ]


def _parts(array: np.ndarray) -> np.ndarray:
    """The real numbers that ``array`` consists of, as one row: real parts, then imaginary ones."""
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind != "c":
        return flat.astype(np.float64)
    return np.concatenate([flat.real, flat.imag]).astype(np.float64)


def _numbers(t: Tensor) -> Any:
    """The values, on the host."""
    return values_of(t.detach())


def _units(t: Tensor) -> Any:
    """All unit tensors of the shape of ``t``; for complex ones times 1, then times the imaginary
    unit."""
    shape, kind = t.meta()
    for unit in (1.0, 1j) if kind.kind == "c" else (1.0,):
        for k in range(int(np.prod(shape))):
            seed = np.zeros(shape, kind)
            seed.reshape(-1)[k] = unit
            yield seed


class _Check:
    """One function at one place."""

    def __init__(self, func: Callable, given: tuple, checked: list[int], chosen: Options) -> None:
        self.func, self.given, self.checked, self.chosen = func, given, checked, chosen
        self.outs = _outputs(func, given)

    def run(self) -> None:
        numeric = {i: self._differences(i) for i in self.checked}
        if self.chosen.check_forward_ad:
            self._forward(numeric)
        if not self.chosen.check_backward_ad:
            return
        for o, out in enumerate(self.outs):
            exact, again = self._rows(o, out), self._rows(o, out)
            for i in self.checked:
                self._same(i, o, exact[i], numeric[i][o], "")
                if not np.allclose(exact[i], again[i], rtol=0, atol=self.chosen.nondet_tol):
                    raise GradcheckError(
                        "gradcheck: Backward is not reentrant, i.e., running backward with same "
                        "input and grad_output multiple times gives different values, although "
                        "analytical gradient matches numerical gradient (nondet_tol="
                        f"{self.chosen.nondet_tol}; output {o}, input {i})"
                    )
            if self.chosen.check_batched_grad and out.requires_grad:
                self._batched(out)
        self._multiplied()

    # --- numbers --------------------------------------------------------------------------------
    def _differences(self, i: int) -> list[np.ndarray]:
        """Per output the Jacobian for input ``i``, by differences."""
        base = _numbers(self.given[i])
        columns: list[list] = [[] for _ in self.outs]
        for unit in _units(self.given[i]):
            sides = []
            for step in (self.chosen.eps, -self.chosen.eps):
                here = np.array(base + unit * step, base.dtype)
                moved = beside(self.given[i], here).requires_grad_()
                args = [moved if j == i else t for j, t in enumerate(self.given)]
                sides.append([_parts(_numbers(o)) for o in _outputs(self.func, args)])
            for column, up, down in zip(columns, *sides, strict=True):
                column.append((up - down) / (2 * self.chosen.eps))
        return [
            np.array(c).T if c else np.zeros((_parts(_numbers(o)).size, 0))
            for c, o in zip(columns, self.outs, strict=True)
        ]

    def _rows(self, o: int, out: Tensor) -> dict[int, np.ndarray]:
        """Per input the Jacobian of output ``o``, by backward."""
        wanted = [self.given[i] for i in self.checked]
        rows: dict[int, list] = {i: [] for i in self.checked}
        for seed in _units(out):
            found: Sequence = (None,) * len(wanted)
            if out.requires_grad:
                found = grad(out, wanted, beside(out, seed), retain_graph=True, allow_unused=True)
            for i, t, g in zip(self.checked, wanted, found, strict=True):
                self._check_meta(i, t, g)
                rows[i].append(_parts(np.zeros(*t.meta()) if g is None else _numbers(g)))
        sizes = {i: _parts(_numbers(self.given[i])).size for i in self.checked}
        return {i: np.array(r).reshape(len(r), sizes[i]) for i, r in rows.items()}

    def _check_meta(self, i: int, t: Tensor, g: Tensor | None) -> None:
        if g is not None and self.chosen.check_grad_dtypes and g.dtype is not t.dtype:
            raise GradcheckError(
                f"gradcheck: the gradient of input {i} is {g.dtype!r}, the input is {t.dtype!r}"
            )

    def _same(self, i: int, o: int, exact: np.ndarray, numeric: np.ndarray, mode: str) -> None:
        exact = exact.reshape(numeric.shape)
        bad = ~np.isclose(exact, numeric, rtol=self.chosen.rtol, atol=self.chosen.atol,
                          equal_nan=True)  # fmt: skip
        if not bad.any():
            return
        row, column = np.argwhere(bad)[0]
        raise GradcheckError(
            f"gradcheck: Jacobian {mode}mismatch for output {o} with respect to input {i}: the "
            f"derivative of element {row} of the output by element {column} of the input is "
            f"{exact[row, column]:.8g}; differences say {numeric[row, column]:.8g} "
            f"({int(bad.sum())} of {bad.size} elements disagree).\n"
            f"numerical: {numeric}\nanalytical: {exact}"
        )

    # --- forward mode ---------------------------------------------------------------------------
    def _forward(self, numeric: dict) -> None:
        for i in self.checked:
            units = list(_units(self.given[i]))
            columns = [self._push(i, beside(self.given[i], unit)) for unit in units]
            for o in range(len(self.outs)):
                exact = np.array([c[o] for c in columns]).T.reshape(numeric[i][o].shape)
                self._same(i, o, exact, numeric[i][o], "computed with forward mode ")
            if self.chosen.check_batched_forward_grad and units:
                self._batched_forward(i, units, columns)

    def _along(self, i: int) -> Callable:
        def of(x: Tensor) -> tuple:
            return tuple(
                _outputs(self.func, [x if j == i else t for j, t in enumerate(self.given)])
            )

        return of

    def _push(self, i: int, direction: Tensor) -> list[np.ndarray]:
        """In a block of dual numbers, where the function may take derivatives of its own."""
        with forward_ad.dual_level():
            x = self.given[
                i
            ]  # a complex one is made of halves in PyTorch, one of them with a graph
            primal = x if x.is_complex() else x.detach()
            outs = self._along(i)(forward_ad.make_dual(primal, direction))
            pairs = [forward_ad.unpack_dual(o) for o in outs]
            moved = [zeros_like(p) if t is None else t for p, t in pairs]
            return [_parts(_numbers(m)) for m in moved]

    def _batched_forward(self, i: int, units: list, columns: list) -> None:
        x = self.given[i].detach()
        rows = vmap(lambda d: jvp(self._along(i), (x,), (d,))[1])(beside(x, np.stack(units[:2])))
        for o, moved in enumerate(rows):
            for k, m in enumerate(_numbers(moved)):
                if not np.allclose(_parts(m), columns[k][o], rtol=self.chosen.rtol,
                                   atol=self.chosen.atol):  # fmt: skip
                    raise GradcheckError(
                        "gradcheck or gradgradcheck failed while testing batched forward gradient "
                        f"computation: output {o}, input {i}: vmap of jvp differs from jvp"
                    )

    # --- properties of backward -----------------------------------------------------------------
    def _live(self) -> list[Tensor]:
        return [o for o in self.outs if o.requires_grad]

    def _pull(self, outs: list, seeds: list) -> tuple:
        wanted = [self.given[i] for i in self.checked]
        return grad(outs, wanted, seeds, retain_graph=True, allow_unused=True)

    def _batched(self, out: Tensor) -> None:
        rng = np.random.default_rng(0)
        shape, kind = out.meta()
        seeds = rng.standard_normal((2, *shape)).astype(kind)
        wanted = [self.given[i] for i in self.checked]
        each = [self._pull([out], [beside(out, s)]) for s in seeds]
        together = vmap(lambda s: grad(out, wanted, s, retain_graph=True, materialize_grads=True))(
            beside(out, seeds)
        )
        for n, rows in enumerate(together):
            for k, g in enumerate(_numbers(rows)):
                alone = each[k][n]
                want = np.zeros_like(g) if alone is None else _numbers(alone)
                if not np.allclose(g, want, rtol=self.chosen.rtol, atol=self.chosen.atol):
                    raise GradcheckError(
                        "gradcheck or gradgradcheck failed while testing batched gradient "
                        f"computation: input {self.checked[n]}: vmap over cotangents differs from "
                        "one at a time"
                    )

    def _multiplied(self) -> None:
        live = self._live()
        if not live:
            return
        seeds = [beside(o, np.zeros(*o.meta())) for o in live]
        for i, g in zip(self.checked, self._pull(live, seeds), strict=True):
            if g is not None and _numbers(g).any():
                raise GradcheckError(
                    "gradcheck: backward not multiplied by grad_output: a gradient of zero gives "
                    f"one that is not zero for input {i}"
                )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    gen_non_contig_grad_outputs: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    **options: Any,
) -> bool:
    """``gradcheck`` of the gradients themselves, for random cotangents (or ``grad_outputs``)."""
    func, inputs = of_values(func, inputs)
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outs = _outputs(func, given)
    rng = np.random.default_rng(0)
    if grad_outputs is None:
        seeds = [wrap(_random(rng, o, gen_non_contig_grad_outputs)).requires_grad_() for o in outs]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    n = len(given)
    where = [i for i, t in enumerate(given) if isinstance(t, Tensor) and t.requires_grad]

    def first_derivatives(*args: Tensor) -> tuple:
        args = tuple(
            a if i not in where or a.requires_grad else a.view_as(a).requires_grad_()
            for i, a in enumerate(args)
        )
        results = zip(_outputs(func, args[:n]), args[n:], strict=True)
        live = [(o, s) for o, s in results if o.requires_grad]
        wanted = [args[i] for i in where]
        rows = grad(
            [o for o, _ in live], wanted, [s for _, s in live], create_graph=True,
            allow_unused=True,
        )  # fmt: skip
        return tuple(r for r in rows if r is not None)

    return gradcheck(
        first_derivatives,
        (*given, *seeds),
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        **options,
    )


def _random(rng: np.random.Generator, t: Tensor, strided: bool) -> np.ndarray:
    shape, kind = t.meta()
    if strided and shape:
        return rng.standard_normal((*shape, 2)).astype(kind)[..., 0]
    return rng.standard_normal(shape).astype(kind)
