"""Calls of linear algebra and Fourier transforms: values, first and second gradients, vmap.

A case is a text that computes a tensor, or several, from matrices ``a`` and ``b``, and the kinds of
matrices that it is drawn for. What a decomposition leaves free (signs, phases, the order of
eigenvalues) is taken out by the text: sizes of vectors, products, sums over eigenvalues.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

# kind | text. Kinds: s square, well conditioned; p positive definite; h Hermitian; t tall, w wide,
# r any of t, w, s; v a signal. ``b`` has as many rows as a kind's matrices.
CASES = """s|L.inv(a)
s|L.inv_ex(a).inverse
s|L.solve(a, b)
s|L.solve(a, b[..., 0])
s|L.solve_ex(a, b).result
s|L.det(a)
s|L.slogdet(a)
s|T.logdet(a @ a)
s|L.matrix_exp(a / 3)
s|L.matrix_exp(a)
s|L.matrix_power(a, 3)
s|L.matrix_power(a, -2)
s|L.eig(a).eigenvalues.sum(-1), (L.eigvals(a) ** 2).sum(-1)
s|L.eig(a).eigenvectors.abs().square().sum((-2, -1))
s|L.eigvals(a).abs().sum(-1)
s|L.lu_solve(*L.lu_factor(a), b)
s|L.lu_solve(*L.lu_factor(a), b, adjoint=True)
s|L.lu_solve(*L.lu_factor(a), b.mT, left=False)
s|L.lu_solve(*L.lu_factor(a), b.mT, left=False, adjoint=True)
s|T.lu_solve(b, *T.lu(a))
s|T.triangular_solve(b, a).solution
s|T.triangular_solve(b, a, upper=False, transpose=True).solution
s|L.tensorinv(a.reshape(*a.shape[-2:]), 1) if a.ndim == 2 else a
s|L.cond(a, 'fro')
s|L.cond(a)
r|L.lu(a)
r|T.lu_unpack(*L.lu_factor(a))
r|L.lu_factor(a).LU, L.lu_factor(a).pivots
r|L.lu_factor_ex(a).info
t|L.qr(a).Q.abs(), L.qr(a).R.abs()
w|L.qr(a).Q.abs(), L.qr(a).R.abs()
s|L.qr(a).Q @ L.qr(a, 'complete').R
w|L.qr(a, 'complete').R.abs()
t|L.qr(a.detach(), 'complete').R.abs()
r|L.qr(a.detach(), 'r').R.abs()
r|T.qr(a).R.abs()
r|L.svd(a, full_matrices=False).U.abs(), L.svdvals(a), L.svd(a, full_matrices=False).Vh.abs()
r|L.svd(a).S
r|T.svd(a).V.abs()
r|L.svdvals(a)
r|L.matrix_norm(a, 'nuc'), L.matrix_norm(a, 2), L.matrix_norm(a, -2), L.matrix_norm(a)
r|L.pinv(a)
r|L.pinv(a, rtol=0.3)
r|T.pinverse(a)
r|L.matrix_rank(a.detach()), L.matrix_rank(a.detach(), atol=1.3)
r|L.matrix_rank(a.detach(), rtol=0.45)
t|L.lstsq(a, b).solution
w|L.lstsq(a, b).solution
t|L.lstsq(a, b, driver='gels').residuals
t|L.lstsq(a, b[..., 0], driver='gelsd').solution, L.lstsq(a, b, driver='gelsd').rank
t|L.lstsq(a, b, driver='gelss').singular_values
t|L.householder_product(a, b[..., 0, : a.shape[-1]])
t|T.ormqr(a, b[..., 0, : a.shape[-1]], b)
t|T.ormqr(a, b[..., 0, : a.shape[-1]], b, transpose=True)
t|T.ormqr(a, b[..., 0, : a.shape[-1]], b.mT, left=False)
t|T.orgqr(*T.geqrf(a.detach())).abs()
p|L.cholesky((a + a.mH) / 2).tril(-1), L.cholesky((a + a.mH) / 2).real
p|L.cholesky((a + a.mH) / 2, upper=True).triu(1), L.cholesky((a + a.mH) / 2, upper=True).real
p|L.cholesky_ex((a + a.mH) / 2).L.real, L.cholesky_ex((a + a.mH) / 2).info
p|T.cholesky_solve(b, L.cholesky((a + a.mH) / 2))
p|T.cholesky_solve(b, a.triu(), upper=True)
p|T.cholesky_inverse(a.tril())
p|T.cholesky_inverse(L.cholesky((a + a.mH) / 2, upper=True), upper=True)
p|T.cholesky((a + a.mH) / 2).real
h|L.eigh(a).eigenvalues, L.eigh(a).eigenvectors.abs()
h|L.eigvalsh(a, UPLO='U')
h|L.eigh(a, UPLO='U').eigenvectors.abs()
h|L.pinv(a, hermitian=True)
h|L.matrix_rank(a.detach(), hermitian=True)
h|L.ldl_solve(*L.ldl_factor(a.detach(), hermitian=True), b, hermitian=True)
h|L.ldl_factor(a.detach(), hermitian=True).pivots
s|L.solve_triangular(a, b, upper=True)
s|L.solve_triangular(a, b, upper=False, unitriangular=True)
s|L.solve_triangular(a, b.mT, upper=False, left=False)
s|L.solve_triangular(a, b.mT, upper=True, left=False, unitriangular=True)
r|L.multi_dot([a.reshape(a.shape[-2:]), a.mT.reshape(a.shape[:-3:-1])]) if a.ndim == 2 else a
r|T.cdist(a.real, b.real.mT[..., : a.shape[-1]]) if a.shape[-1] <= b.shape[-2] else a
v|F.fft(a)
v|F.ifft(a, 5)
v|F.fft(a, dim=-2, norm='ortho')
v|F.rfft(a.real, norm='forward')
v|F.rfft(a.real, 7)
v|F.irfft(a)
v|F.irfft(a, 5, norm='ortho')
v|F.irfft(a, 4, dim=-2)
v|F.hfft(a), F.hfft(a, 5)
v|F.ihfft(a.real), F.ihfft(a.real, 6, norm='ortho')
v|F.fft2(a), F.ifft2(a, (3, 4))
v|F.rfft2(a.real), F.irfft2(a, norm='forward')
v|F.rfftn(a.real, norm='ortho'), F.irfftn(a, (4, 5))
v|F.hfft2(a), F.hfftn(a, norm='forward')
v|F.ihfft2(a.real), F.ihfftn(a.real)
v|F.fftn(a), F.ifftn(a, dim=(-1,))
v|F.fftshift(a), F.ifftshift(a, -1)
v|T.stft(a[..., 0, :].real, 4, 2, window=T.hann_window(4, dtype=a.real.dtype), return_complex=True)
v|T.istft(F.fft(b.mT, 4, -2), 4, 2, T.ones(4, dtype=a.real.dtype), onesided=False, \
return_complex=True)""".replace("\\\n", "").splitlines()
LEADS = ((), (), (2,), (2, 1), (0,))
TOLERANCE = {"float64": 1e-6, "complex128": 1e-6, "float32": 2e-2, "complex64": 2e-2}


class Draw(NamedTuple):
    """A case with its matrices, and how it is called."""

    text: str
    a: np.ndarray
    b: np.ndarray
    mode: str


MODES = ("value", "gradient", "gradient", "second", "vmap", "strided")


def draw(seed: int, case: str) -> Draw:
    kind, text = case.split("|", 1)
    rng, one = np.random.default_rng(seed), random.Random(seed)
    mode = one.choice(MODES)
    wide = ("float64", "complex128")
    dtype = one.choice(wide if mode == "second" else (*wide, *wide, "float32", "complex64"))
    lead = one.choice(LEADS if mode in ("value", "strided") else LEADS[:-1])
    n = one.choice((1, 2, 3, 4, 5)) if kind not in "tw" else one.choice((2, 3))
    kind = one.choice("tws") if kind == "r" else kind
    rows, columns = {"t": (n + 2, n), "w": (n, n + 2), "v": (n + 3, n + 4)}.get(kind, (n, n))
    a = _matrices(rng, kind, lead, rows, columns, dtype)
    return Draw(text, a, _numbers(rng, (*lead, rows, rows + 1 if kind == "t" else 3), dtype), mode)


def _numbers(rng: np.random.Generator, shape: tuple, dtype: str) -> np.ndarray:
    made = rng.normal(size=shape)
    return (made + 1j * rng.normal(size=shape) if dtype[0] == "c" else made).astype(dtype)


def _matrices(
    rng: np.random.Generator, kind: str, lead: tuple, rows: int, columns: int, dtype: str
) -> np.ndarray:
    made = _numbers(rng, (*lead, rows, columns), dtype)
    if kind == "v":
        return made
    apart = np.linspace(1, 2, min(rows, columns))[::-1] + np.arange(min(rows, columns))[::-1]
    if kind in "ph":  # eigenvalues well apart
        vectors = np.linalg.qr(made)[0]
        values = apart if kind == "p" else apart - 3.3
        whole = vectors * values @ np.swapaxes(vectors, -1, -2).conj()
        return ((whole + np.swapaxes(whole, -1, -2).conj()) / 2).astype(dtype)
    u, _, vh = np.linalg.svd(made, full_matrices=False)
    return (u * apart @ vh).astype(dtype)


# --- what a draw computes ------------------------------------------------------------------------
def results(T: Any, d: Draw) -> list[np.ndarray] | Exception:
    """Arrays of all that the draw computes, or what it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [_array(x) for x in _run(T, d)]
    except Exception as error:
        return error


def _array(x: Any) -> np.ndarray:
    return x.detach().resolve_conj().numpy()


def _run(T: Any, d: Draw) -> list[Any]:
    def call(a: Any, b: Any) -> tuple:
        names = {"T": T, "L": T.linalg, "F": T.fft, "a": a, "b": b}
        out = eval(d.text, names)
        return tuple(out) if isinstance(out, tuple) else (out,)

    a, b = T.tensor(d.a), T.tensor(d.b)
    if d.mode == "strided":
        a, b = (T.tensor(np.swapaxes(x, -1, -2).copy()).mT for x in (d.a, d.b))
    if d.mode == "vmap":
        stacked = [T.stack([x, x * 1.25], 0) for x in (a, b)]
        return list(T.func.vmap(call)(*stacked))
    if d.mode in ("value", "strided"):
        return list(call(a, b))
    a.requires_grad_()
    b.requires_grad_()
    outs = [x for x in call(a, b) if x.requires_grad]
    found = [*outs]
    total: Any = sum((_weighed(T, x) for x in outs), T.zeros((), dtype=T.float64))
    if not outs:
        return found
    once = [g for g in _gradients(T, total, (a, b), d.mode == "second") if g is not None]
    found += once
    if d.mode == "second" and once and any(g.requires_grad for g in once):
        again: Any = sum((_weighed(T, g) for g in once), T.zeros((), dtype=T.float64))
        found += [g if g is not None else T.zeros(0) for g in _gradients(T, again, (a, b), False)]
    return found


def _gradients(T: Any, total: Any, inputs: tuple, more: bool) -> Any:
    return T.autograd.grad(total, inputs, create_graph=more, allow_unused=True)


def _weighed(T: Any, x: Any) -> Any:
    """A sum of elements and of their squares, with a weight for each, of both parts."""
    weights = T.tensor(np.cos(np.arange(x.numel())).reshape(tuple(x.shape)))
    parts = (x.real, x.imag) if x.is_complex() else (x,)
    return sum((part * (part * 0.5 + 1) * (weights + i)).sum() for i, part in enumerate(parts))


def misfits(ours: Any, theirs: Any, seeds: range) -> Iterator[str]:
    """Draws whose results differ. What PyTorch refuses is not compared."""
    for seed in seeds:
        for case in CASES:
            d = draw(seed, case)
            if d.mode == "vmap" and "driver" in d.text:  # what is told depends on the rank
                continue
            want = results(theirs, d)
            if isinstance(want, Exception):
                continue
            got = results(ours, d)
            if isinstance(got, Exception) or not _alike(got, want, TOLERANCE[d.a.dtype.name]):
                yield f"{seed} {d.mode} {d.a.dtype} {list(d.a.shape)} {d.text}: {_told(got, want)}"


def _alike(got: list, want: list, tol: float) -> bool:
    return len(got) == len(want) and all(
        (g.shape, g.dtype) == (w.shape, w.dtype)
        and np.allclose(g, w, rtol=tol, atol=tol * max(1.0, _size(w)), equal_nan=True)
        for g, w in zip(got, want, strict=True)
    )


def _size(w: np.ndarray) -> float:
    size = np.abs(w[np.isfinite(w)]).max(initial=0.0) if w.dtype.kind in "fc" else 0.0
    return float(size)


def _told(got: Any, want: list) -> str:
    if isinstance(got, Exception):
        return f"{got!r:.200}"
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for g, w in zip(got, want, strict=True):
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            return f"{g.dtype}{g.shape}, not {w.dtype}{w.shape}"
    far = [float(np.abs(g - w).max(initial=0.0)) for g, w in zip(got, want, strict=True)]
    return f"apart by {far}"
