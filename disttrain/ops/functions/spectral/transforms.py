"""Discrete Fourier transforms: the names of ``torch.fft``.

``n`` or ``s`` cut the input, or pad it with zeros, to so many points; ``norm`` says which direction
divides by their number: "backward" (the inverse; also None), "forward", or "ortho" (both, by the
square root). Integers are converted to the default floating type.
"""

from __future__ import annotations

from collections.abc import Callable

from ....core.annotations import DeviceLike, Dims, DTypeLike
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....core.types.casting import computes_in
from ....errors import ConfigError, DimError, DTypeError, ShapeError
from ...primitives import fourier
from ...primitives.elementwise import cast
from ...primitives.views import pad_constant, roll
from ..args import one_dim
from ..args import tensor as as_input
from ..creation.create import arange
from ..elementwise import conj
from ..views.join import cat
from ..views.split import narrow

_TYPES = "fdFD"


def _norm(where: str, norm: str | None) -> str:
    if norm not in (None, *fourier.OTHER):
        raise ConfigError(
            f'{where}: Invalid normalization mode: "{norm}"; needed "backward", "ortho" or '
            '"forward"'
        )
    return norm or "backward"


def _floating(where: str, x: Tensor, to_complex: bool) -> Tensor:
    """``x`` in the type that the transform computes in."""
    kind = as_input(x, where).dtype
    if kind.np.kind in "biu":
        kind = dtypes.get_default_dtype()
    if kind.np.char not in _TYPES:
        raise DTypeError(f"{where}: Unsupported dtype {kind!r}; convert it with .float()")
    kind = kind.to_complex() if to_complex and not kind.is_complex else kind
    return x if x.dtype is kind else cast(x, dtype=kind.np)


def _real(where: str, x: Tensor) -> Tensor:
    if as_input(x, where).dtype.is_complex:
        kind = "real-valued input" if where.endswith(("n", "2")) else "real input"
        raise DTypeError(
            f"{where.removeprefix('fft.')} expects a {kind} tensor, but got {x.dtype!r}"
        )
    return _floating(where, x, False)


def _resized(x: Tensor, sizes: dict[int, int]) -> Tensor:
    """Cut at the end, or padded with zeros, along some dimensions."""
    for d, n in sizes.items():
        if n < x.shape[d]:
            x = narrow(x, d, 0, n)
    more = [(0, max(sizes.get(d, 0) - n, 0)) for d, n in enumerate(x.shape)]
    return pad_constant(x, widths=tuple(more)) if any(after for _, after in more) else x


def _points(where: str, n: int) -> int:
    if n < 1:
        raise ShapeError(f"{where}: Invalid number of data points ({n}) specified")
    return n


def _along(where: str, x: Tensor, dim: int) -> int:
    if not x.ndim:
        raise DimError(f"{where}: Dimension specified as {dim} but tensor has no dimensions")
    return one_dim(dim, x.ndim, where)


def _axes(
    where: str, x: Tensor, s: Dims | None, dim: Dims | None
) -> tuple[tuple[int, ...], list[int]]:
    """(dimensions, the number of points along each: -1 as many as there are)."""
    sizes = None if s is None else [s] if isinstance(s, int) else list(s)
    if dim is not None:
        given = [dim] if isinstance(dim, int) else list(dim)
        over = tuple(_along(where, x, d) for d in given)
        if len(set(over)) != len(over):
            raise ConfigError(f"{where}: FFT dims must be unique; {tuple(given)} given")
        if sizes is not None and len(sizes) != len(over):
            raise ConfigError(
                f"{where}: When given, dim and shape arguments must have the same length; "
                f"{len(over)} and {len(sizes)} given"
            )
    else:
        count = x.ndim if sizes is None else len(sizes)
        if count > x.ndim:
            raise ConfigError(
                f"{where}: Got shape with {count} values but input tensor only has {x.ndim} "
                "dimensions."
            )
        over = tuple(range(x.ndim - count, x.ndim))
    return over, [-1] * len(over) if sizes is None else sizes


def _several(where: str, x: Tensor, over: tuple[int, ...], sizes: list[int]) -> Tensor:
    wanted = {d: x.shape[d] if n == -1 else n for d, n in zip(over, sizes, strict=True)}
    for n in wanted.values():
        _points(where, n)
    return _resized(x, wanted)


def _complex_transform(
    where: str, x: Tensor, s: Dims | None, dim: Dims | None, norm: str | None, inverse: bool
) -> Tensor:
    over, sizes = _axes(where, x, s, dim)
    x = _floating(where, x, True)
    x, share = _several(where, x, over, sizes), _norm(where, norm)
    return fourier.fft(x, dims=over, inverse=inverse, norm=share) if over else x.clone()


def _halving_transform(
    where: str, x: Tensor, s: Dims | None, dim: Dims | None, norm: str | None, turned: bool
) -> Tensor:
    over, sizes = _axes(where, x, s, dim)
    x = _real(where, x)
    if not over:
        raise ShapeError(f"{where} must transform at least one axis")
    x, share = _several(where, x, over, sizes), _norm(where, norm)
    out = fourier.rfft(x, dims=over, norm=fourier.OTHER[share] if turned else share)
    return conj(out) if turned else out


def _doubling_transform(
    where: str, x: Tensor, s: Dims | None, dim: Dims | None, norm: str | None, turned: bool
) -> Tensor:
    over, sizes = _axes(where, x, s, dim)
    x = _floating(where, x, True)
    if not over:
        raise ShapeError(f"{where} must transform at least one axis")
    last = 2 * (x.shape[over[-1]] - 1) if sizes[-1] == -1 else sizes[-1]
    _points(where, last)
    x, share = _several(where, x, over, [*sizes[:-1], last // 2 + 1]), _norm(where, norm)
    if turned:
        x, share = conj(x), fourier.OTHER[share]
    return fourier.irfft(x, dims=over, size=last, norm=share)


def _one(
    transform: Callable[..., Tensor], name: str, flag: bool, n: int | None, x: Tensor, dim: int,
    norm: str | None,
) -> Tensor:  # fmt: skip
    where = f"fft.{name}"
    _along(where, as_input(x, where), dim)
    return transform(where, x, None if n is None else [_points(where, n)], [dim], norm, flag)


@computes_in("full")
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform along ``dim``. Real or complex to complex."""
    return _one(_complex_transform, "fft", False, n, input, dim, norm)


@computes_in("full")
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``fft``. Real or complex to complex."""
    return _one(_complex_transform, "ifft", True, n, input, dim, norm)


@computes_in("full")
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The first n // 2 + 1 points of ``fft`` of real numbers; the others are their conjugates."""
    return _one(_halving_transform, "rfft", False, n, input, dim, norm)


@computes_in("full")
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``rfft``: ``n`` real numbers (None: twice the points less two)."""
    return _one(_doubling_transform, "irfft", False, n, input, dim, norm)


@computes_in("full")
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of a Hermitian signal, given by its first half: ``n`` real numbers."""
    return _one(_doubling_transform, "hfft", True, n, input, dim, norm)


@computes_in("full")
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``hfft``: the first half of a Hermitian signal, of real numbers."""
    return _one(_halving_transform, "ihfft", True, n, input, dim, norm)


@computes_in("full")
def fftn(
    input: Tensor, s: Dims | None = None, dim: Dims | None = None, norm: str | None = None
) -> Tensor:
    """``fft`` over several dimensions (None: all, or the last ones for which ``s`` has sizes)."""
    return _complex_transform("fft.fftn", as_input(input, "fft.fftn"), s, dim, norm, False)


@computes_in("full")
def ifftn(
    input: Tensor, s: Dims | None = None, dim: Dims | None = None, norm: str | None = None
) -> Tensor:
    """The inverse of ``fftn``."""
    return _complex_transform("fft.ifftn", as_input(input, "fft.ifftn"), s, dim, norm, True)


@computes_in("full")
def rfftn(
    input: Tensor, s: Dims | None = None, dim: Dims | None = None, norm: str | None = None
) -> Tensor:
    """``fftn`` of real numbers, the first half along the last dimension."""
    return _halving_transform("fft.rfftn", as_input(input, "fft.rfftn"), s, dim, norm, False)


@computes_in("full")
def irfftn(
    input: Tensor, s: Dims | None = None, dim: Dims | None = None, norm: str | None = None
) -> Tensor:
    """The inverse of ``rfftn``."""
    return _doubling_transform("fft.irfftn", as_input(input, "fft.irfftn"), s, dim, norm, False)


def hfftn(
    input: Tensor, s: Dims | None = None, dim: Dims | None = None, norm: str | None = None
) -> Tensor:
    """The transform of a signal that is Hermitian, given by its half along the last dimension."""
    return _doubling_transform("fft.hfftn", as_input(input, "fft.hfftn"), s, dim, norm, True)


def ihfftn(
    input: Tensor, s: Dims | None = None, dim: Dims | None = None, norm: str | None = None
) -> Tensor:
    """The inverse of ``hfftn``."""
    return _halving_transform("fft.ihfftn", as_input(input, "fft.ihfftn"), s, dim, norm, True)


def _two(where: str, dim: Dims) -> Dims:
    if dim is None:
        raise TypeError(f"{where}: argument 'dim' must be tuple of ints, not NoneType")
    return dim


@computes_in("full")
def fft2(
    input: Tensor, s: Dims | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Tensor:
    """``fftn`` over two dimensions."""
    return fftn(input, s, _two("fft.fft2", dim), norm)


@computes_in("full")
def ifft2(
    input: Tensor, s: Dims | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Tensor:
    """``ifftn`` over two dimensions."""
    return ifftn(input, s, _two("fft.ifft2", dim), norm)


@computes_in("full")
def rfft2(
    input: Tensor, s: Dims | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Tensor:
    """``rfftn`` over two dimensions."""
    return rfftn(input, s, _two("fft.rfft2", dim), norm)


@computes_in("full")
def irfft2(
    input: Tensor, s: Dims | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Tensor:
    """``irfftn`` over two dimensions."""
    return irfftn(input, s, _two("fft.irfft2", dim), norm)


def hfft2(
    input: Tensor, s: Dims | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Tensor:
    """``hfftn`` over two dimensions."""
    return hfftn(input, s, _two("fft.hfft2", dim), norm)


def ihfft2(
    input: Tensor, s: Dims | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Tensor:
    """``ihfftn`` over two dimensions."""
    return ihfftn(input, s, _two("fft.ihfft2", dim), norm)


# --- frequencies ---------------------------------------------------------------------------------
def fftfreq(
    n: int, d: float = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The frequencies of the points of ``fft`` of ``n`` samples ``d`` apart: 0, the positive ones,
    the negative ones, in cycles per unit of ``d``."""
    made = {"dtype": _kind("fft.fftfreq", dtype), "device": device}
    first = arange(0, (n + 1) // 2, **made)  # type: ignore[arg-type]
    out = cat([first, arange(-(n // 2), 0, **made)]) * _unit("fft.fftfreq", n, d)  # type: ignore[arg-type]
    return out.requires_grad_() if requires_grad else out


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The frequencies of the points of ``rfft`` of ``n`` samples ``d`` apart, none negative."""
    kind = _kind("fft.rfftfreq", dtype)
    out = arange(0, n // 2 + 1, dtype=kind, device=device) * _unit("fft.rfftfreq", n, d)
    return out.requires_grad_() if requires_grad else out


def _kind(where: str, dtype: DTypeLike | None) -> dtypes.dtype:
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if not (kind.is_floating_point or kind.is_complex):
        raise DTypeError(f"{where} requires a floating point or complex dtype; {kind!r} given")
    return kind


def _unit(where: str, n: int, d: float) -> float:
    return 1.0 / (n * d) if n and d else float("inf")


def _shifted(where: str, x: Tensor, dim: Dims | None, up: bool) -> Tensor:
    over = range(as_input(x, where).ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    along = tuple(one_dim(d, x.ndim, where) for d in over)
    if not along:
        return x.clone()
    sizes = [x.shape[d] for d in along]
    return roll(x, shifts=tuple((n + up) // 2 for n in sizes), dims=along)


def fftshift(input: Tensor, dim: Dims | None = None) -> Tensor:
    """Frequency 0 in the middle, along ``dim`` (None: all)."""
    return _shifted("fft.fftshift", input, dim, False)


def ifftshift(input: Tensor, dim: Dims | None = None) -> Tensor:
    """The inverse of ``fftshift``."""
    return _shifted("fft.ifftshift", input, dim, True)
