"""Fourier transforms of short parts of a signal that overlap, and the signal from them."""

from __future__ import annotations

from ....core.tensor import Tensor
from ....core.types.casting import computes_in
from ....errors import ConfigError, DTypeError, ShapeError
from ....trace import warn
from ...primitives.aliases import fold_windows, unfold
from ...primitives.elementwise import square
from ..args import tensor as as_input
from ..creation.create import ones
from ..nn.padding import SOURCES, extended, pad
from ..views.aliases import view_as_real
from ..views.shapes import expand
from . import transforms


def _checked(
    where: str, n_fft: int, hop: int | None, length: int | None, window: Tensor | None
) -> tuple[int, int]:
    """(hop, the window's length), with their defaults."""
    hop = n_fft // 4 if hop is None else hop
    length = n_fft if length is None else length
    if hop <= 0:
        raise ConfigError(f"{where}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise ConfigError(f"{where}: expected 0 < win_length <= n_fft, but got win_length={length}")
    if window is not None and (window.ndim != 1 or window.shape[0] != length):
        raise ShapeError(
            f"{where}: expected a 1D window tensor of size equal to win_length={length}, but got "
            f"window with size {list(window.shape)}"
        )
    return hop, length


def _window(like: Tensor, n_fft: int, length: int, window: Tensor | None) -> Tensor:
    """The window in the middle of ``n_fft`` points."""
    if window is None:
        kind = like.real.dtype if like.is_complex() else like.dtype
        window = ones(length, dtype=kind, device=like.device)
    before = (n_fft - length) // 2
    return pad(window, (before, n_fft - length - before)) if length < n_fft else window


def _surrounded(x: Tensor, extra: int, mode: str) -> Tensor:
    """The signal with ``extra`` points at both ends."""
    if mode == "constant":
        return pad(x, (extra, extra))
    if mode not in SOURCES:
        raise ConfigError(f"stft: pad_mode={mode!r} given; needed constant, {', '.join(SOURCES)}")
    if mode == "circular" and extra > x.shape[-1]:
        raise ShapeError("stft: Padding value causes wrapping around more than once.")
    return extended(x, (extra, extra), mode)


@computes_in("full")
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect",
    normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """Transforms of ``n_fft`` points every ``hop_length`` (None: a quarter) of signals (length,) or
    (batch, length), times ``window``: (..., frequencies, parts), complex.

    ``center``: parts lie around their places, the signal being padded by ``pad_mode`` at both ends.
    ``onesided`` (None: for real signals): the frequencies that are not negative. ``normalized``: by
    the square root of ``n_fft``. ``return_complex=False``: pairs of real numbers.
    """
    x = as_input(input, "stft")
    if x.dtype.np.kind not in "fc":
        raise DTypeError(
            f"stft: expected a tensor of floating point or complex values; {x.dtype!r}"
        )
    if x.ndim not in (1, 2):
        raise ShapeError(f"stft: expected a 1D or 2D tensor, but got {x.ndim}D tensor")
    either = x.is_complex() or (window is not None and window.is_complex())
    if return_complex is None and not either:
        raise ConfigError(
            "stft requires the return_complex parameter be given for real inputs, and will further "
            "require that return_complex=True in a future PyTorch release."
        )
    if window is None:
        warn(
            "A window was not provided. A rectangular window will be applied, which is known to "
            "cause spectral leakage. Other windows such as hann_window are recommended"
        )
    if align_to_window is not None and center:
        raise ConfigError("stft align_to_window should only be set when center = false.")
    if center:
        x = _surrounded(x, n_fft // 2, pad_mode)
    if not 0 < n_fft <= x.shape[-1]:
        raise ConfigError(
            f"stft: expected 0 < n_fft < {x.shape[-1]}, but got n_fft={n_fft} (input of shape "
            f"{list(input.shape)})"
        )
    hop, length = _checked("stft", n_fft, hop_length, win_length, window)
    onesided = not either if onesided is None else onesided
    if onesided and either:
        raise ConfigError("stft: Cannot have onesided output if window or input is complex")
    parts = unfold(x, dim=x.ndim - 1, size=n_fft, step=hop)
    if window is not None or length < n_fft:
        parts = parts * _window(x, n_fft, length, window)
    share = "ortho" if normalized else None
    transform = transforms.rfft if onesided else transforms.fft
    out = transform(parts, norm=share).transpose(-1, -2)
    return view_as_real(out.contiguous()) if return_complex is False else out


def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False,
    onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal of ``stft``'s transforms (..., frequencies, parts): parts are added up where they
    overlap and divided by the sum of squares of their windows (Griffin and Lim, 1984).

    Raises ``ConfigError`` where that sum is 0. ``length``: of the signal.
    """
    x = as_input(input, "istft")
    if not x.is_complex():
        raise DTypeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    if x.ndim not in (2, 3) or not x.shape.numel():
        raise ShapeError(
            f"istft: expected a tensor with 2 or 3 dimensions that is not empty, but got shape "
            f"{list(x.shape)}"
        )
    onesided = x.shape[-2] != n_fft if onesided is None else onesided
    rows = n_fft // 2 + 1 if onesided else n_fft
    if x.shape[-2] != rows:
        raise ShapeError(
            f"istft: expected the frequency dimension (3rd to the last) of the input tensor to "
            f"match n_fft{' / 2 + 1' if onesided else ''} when onesided={onesided}, but got "
            f"{x.shape[-2]}"
        )
    hop, wide = _checked("istft", n_fft, hop_length, win_length, window)
    if hop > wide:
        raise ConfigError(f"istft: expected 0 < hop_length <= win_length, but got {hop} and {wide}")
    if return_complex and onesided:
        raise ConfigError("istft: cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window.is_complex():
        raise ConfigError("istft: Complex windows are incompatible with return_complex=False")
    share = "ortho" if normalized else None
    across = x.transpose(-1, -2)
    if return_complex:
        parts = transforms.ifft(across, norm=share)
    else:  # of a whole spectrum, too, half is read
        parts = transforms.irfft(across[..., : n_fft // 2 + 1], n_fft, norm=share)
    shape = _window(x, n_fft, wide, window)
    return _joined(parts * shape, square(shape), n_fft, hop, center, length)


def _joined(
    parts: Tensor, weights: Tensor, n_fft: int, hop: int, center: bool, length: int | None
) -> Tensor:
    count = parts.shape[-2]
    whole = n_fft + hop * (count - 1)
    added = _added(parts, hop, whole)
    divided = _added(expand(weights, (count, n_fft)), hop, whole)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - (n_fft // 2 if center else 0)
    added, divided = added[..., start:end], divided[start:end]
    if float(divided.detach().abs().min()) <= 1e-11:
        raise ConfigError(
            "istft: window overlap add min: 1; the sum of squares of the windows is 0 somewhere; "
            "take a window or a hop_length that covers the signal"
        )
    out = added / divided
    if length is not None and out.shape[-1] < length:
        out = pad(out, (0, length - out.shape[-1]))
    return out


def _added(parts: Tensor, hop: int, whole: int) -> Tensor:
    """The sum of parts (..., count, points) where they lie, ``hop`` apart."""
    shape, dim = (*parts.shape[:-2], whole), parts.ndim - 2
    return fold_windows(parts, dim=dim, size=parts.shape[-1], step=hop, shape=shape)
