"""``tf.linalg``, ``tf.signal`` and ``tf.image``: tables over what computes."""

from __future__ import annotations

from typing import Any

import disttrain as dt

from ...nn import channels_last
from . import arrays, math
from .dispatch import FLOATS, op, unary

_L: Any = dt.linalg
_fft: Any = dt.fft


@op("MatrixSolve", same="matrix rhs")
def solve(matrix, rhs, adjoint=False):
    return _solved(dt.conj(matrix.transpose(-1, -2)) if adjoint else matrix, rhs)


def _solved(matrix: Any, rhs: Any) -> Any:
    try:
        return _L.solve(matrix, rhs)
    except _L.LinAlgError:
        raise ValueError("Input matrix is not invertible.") from None


@op("MatrixInverse", "input")
def inv(input, adjoint=False):  # noqa: A002
    try:
        found = _L.inv(input)
    except _L.LinAlgError:
        raise ValueError("Input is not invertible.") from None
    return dt.conj(found.transpose(-1, -2)) if adjoint else found


@op("Cholesky", "input")
def cholesky(input):  # noqa: A002
    try:
        return _L.cholesky(input)
    except _L.LinAlgError:
        raise ValueError("Cholesky decomposition was not successful. The input might not be valid."
                         ) from None  # fmt: skip


@op("MatrixTriangularSolve", same="matrix rhs")
def triangular_solve(matrix, rhs, lower=True, adjoint=False):
    matrix = dt.conj(matrix.transpose(-1, -2)) if adjoint else matrix
    return _L.solve_triangular(matrix, rhs, upper=lower == adjoint)


@op("CholeskySolve", same="chol rhs")
def cholesky_solve(chol, rhs):
    return dt.cholesky_solve(rhs, chol)


@op("Svd", "tensor")
def svd(tensor, full_matrices=False, compute_uv=True):
    if not compute_uv:
        return _L.svdvals(tensor)
    u, s, vh = _L.svd(tensor, full_matrices=full_matrices)
    return s, u, dt.conj(vh.transpose(-1, -2))


@op("Qr", "input")
def qr(input, full_matrices=False):  # noqa: A002
    return tuple(_L.qr(input, mode="complete" if full_matrices else "reduced"))


@op("SelfAdjointEigV2", "tensor")
def eigh(tensor):
    return tuple(_L.eigh(tensor))


@op("LogMatrixDeterminant", "input")
def slogdet(input):  # noqa: A002
    return tuple(_L.slogdet(input))


@op("MatrixSolveLs", same="matrix rhs")
def lstsq(matrix, rhs, l2_regularizer=0.0, fast=True):
    turned = dt.conj(matrix.transpose(-1, -2))
    eye = dt.eye(matrix.shape[-1], dtype=matrix.dtype) * l2_regularizer
    return _solved(turned @ matrix + eye, turned @ rhs)


@op("Norm", "tensor")
def norm(tensor, ord="euclidean", axis=None, keepdims=False):  # noqa: A002
    word = 2 if ord == "euclidean" else ord
    dims = axis if axis is None or isinstance(axis, int) else tuple(axis)
    if isinstance(dims, tuple) and ord not in ("euclidean",):
        return _L.matrix_norm(tensor, ord, dim=dims, keepdim=keepdims)
    return _L.vector_norm(tensor, word, dim=dims, keepdim=keepdims)


@op("MatrixBandPart", "input")
def band_part(input, num_lower, num_upper):  # noqa: A002
    lower = input if num_lower < 0 else dt.triu(input, -num_lower)
    return lower if num_upper < 0 else dt.tril(lower, num_upper)


@op("MatrixDiagV3", "diagonal")
def diag(diagonal, k=0):
    return dt.diag_embed(diagonal, k)


@op("MatrixDiagPartV3", "input")
def diag_part(input, k=0):  # noqa: A002
    return dt.diagonal(input, k, -2, -1).clone()


@op("MatrixSetDiagV3", same="input diagonal")
def set_diag(input, diagonal, k=0):  # noqa: A002
    return dt.diagonal_scatter(input, diagonal, k, -2, -1)


@op("Transpose", "a")
def matrix_transpose(a, conjugate=False):
    found = a.transpose(-1, -2).clone()
    return dt.conj(found) if conjugate else found


@op("Cross", same="a b")
def cross(a, b):
    return _L.cross(a, b)


LINALG: dict[str, Any] = {
    **{w: globals()[w] for w in """solve inv cholesky triangular_solve cholesky_solve svd qr eigh
    slogdet lstsq norm band_part diag diag_part set_diag matrix_transpose cross""".split()},
    "det": unary("det", "MatrixDeterminant", _L.det), "trace": unary(
        "trace", "Trace", lambda x: dt.diagonal(x, 0, -2, -1).sum(-1)),
    "logdet": unary("logdet", "LogDet", dt.logdet), "expm": unary("expm", "Expm", dt.matrix_exp),
    "eigvalsh": unary("eigvalsh", "Eigvalsh", _L.eigvalsh), "eye": arrays.eye,
    "pinv": unary("pinv", "Pinv", _L.pinv), "matmul": math.matmul, "matvec": math.matvec,
    "matrix_rank": unary("matrix_rank", "MatrixRank", lambda x: _L.matrix_rank(x).int()),
    "einsum": math.einsum, "tensordot": math.tensordot,
    "adjoint": unary("adjoint", "Adjoint", lambda x: dt.conj(x.transpose(-1, -2)).clone()),
    "tensor_diag": unary("tensor_diag", "Diag", dt.diagflat),
    "tensor_diag_part": unary("tensor_diag_part", "DiagPart", lambda x: dt.diagonal(x).clone()),
    "l2_normalize": None,
}  # fmt: skip
del LINALG["l2_normalize"]


# --- signal -----------------------------------------------------------------------------------
@op("RFFT", "input_tensor")
def rfft(input_tensor, fft_length=None):
    return _fft.rfft(input_tensor, _last(fft_length))


@op("IRFFT", "input_tensor")
def irfft(input_tensor, fft_length=None):
    return _fft.irfft(input_tensor, _last(fft_length))


def _last(length: Any) -> Any:
    return length[-1] if isinstance(length, (list, tuple)) else length


@op("Frame", "signal")
def frame(signal, frame_length, frame_step, pad_end=False, pad_value=0, axis=-1):
    if pad_end:
        n = signal.shape[-1]
        count = -(-n // frame_step)
        short = max(0, frame_length + frame_step * (count - 1) - n)
        signal = dt.nn.functional.pad(signal, [0, short], value=pad_value)
    return signal.unfold(-1, frame_length, frame_step).clone()


def _window(fn: Any) -> Any:
    def window(window_length, periodic=True, dtype="float32"):
        return fn(window_length, periodic=bool(periodic))

    return op("Window")(window)


@op("STFT", "signals")
def stft(signals, frame_length, frame_step, fft_length=None, pad_end=False):
    size = fft_length or 1 << (frame_length - 1).bit_length()
    frames = frame.__wrapped__(signals, frame_length, frame_step, pad_end)
    return _fft.rfft(frames * dt.hann_window(frame_length), size)


_FFTS = ("fft", "ifft", "fft2", "ifft2")
SIGNAL: dict[str, Any] = {
    **{w.replace("2", "2d"): unary(w, w.upper(), getattr(_fft, w)) for w in _FFTS},
    "rfft": rfft, "irfft": irfft, "frame": frame, "stft": stft,
    "hann_window": _window(dt.hann_window), "hamming_window": _window(dt.hamming_window),
    "fftshift": unary("fftshift", "FFTShift", _fft.fftshift),
    "ifftshift": unary("ifftshift", "IFFTShift", _fft.ifftshift),
}  # fmt: skip


# --- images -----------------------------------------------------------------------------------
@op("Resize", "images")
def resize(images, size, method="bilinear", preserve_aspect_ratio=False, antialias=False):
    whole = images if images.ndim == 4 else images.unsqueeze(0)
    sizes = list(size)
    if preserve_aspect_ratio:
        factor = min(s / n for s, n in zip(sizes, whole.shape[1:3], strict=True))
        sizes = [int(n * factor + 0.5) for n in whole.shape[1:3]]
    found = channels_last.resize(whole, sizes, method, antialias)
    return found if images.ndim == 4 else found.squeeze(0)


@op("AdjustContrast", "images")
def adjust_contrast(images, contrast_factor):
    mean = dt.mean(images, dim=(-3, -2), keepdim=True)
    return (images - mean) * contrast_factor + mean


@op("ConvertImageDtype", "image")
def convert_image_dtype(image, dtype, saturate=False):
    kind = math.as_dtype(dtype)
    if image.dtype.is_floating_point == kind.is_floating:
        return image.to(kind.inner)
    if kind.is_floating:
        return image.to(kind.inner) / dt.iinfo(image.dtype).max
    return (image * (kind.max + 0.5)).to(kind.inner)


@op("CentralCrop", "image")
def central_crop(image, central_fraction):
    rows, columns = image.shape[-3], image.shape[-2]
    y, x = (int((n - n * central_fraction) / 2) for n in (rows, columns))
    return image[..., y : rows - y, x : columns - x, :]


@op("CropToBoundingBox", "image")
def crop_to_bounding_box(image, offset_height, offset_width, target_height, target_width):
    return image[..., offset_height : offset_height + target_height,
                 offset_width : offset_width + target_width, :]  # fmt: skip


@op("RGBToGrayscale", "images")
def rgb_to_grayscale(images):
    return (images * dt.tensor([0.2989, 0.5870, 0.1140], dtype=images.dtype)).sum(-1, keepdim=True)


@op("PerImageStandardization", "image")
def per_image_standardization(image):
    image = image.float()
    dims, count = (-3, -2, -1), image.shape[-1] * image.shape[-2] * image.shape[-3]
    spread = dt.sqrt(dt.var(image, dim=dims, keepdim=True, correction=0))
    least = dt.full((), count**-0.5)
    return (image - dt.mean(image, dim=dims, keepdim=True)) / dt.maximum(spread, least)


IMAGE: dict[str, Any] = {
    **{w: globals()[w] for w in """resize adjust_contrast convert_image_dtype central_crop
    crop_to_bounding_box rgb_to_grayscale per_image_standardization""".split()},
    "flip_left_right": unary("flip_left_right", "ReverseV2", lambda x: dt.flip(x, [-2])),
    "flip_up_down": unary("flip_up_down", "ReverseV2", lambda x: dt.flip(x, [-3])),
    "rot90": unary("rot90", "Rot90", lambda x: dt.rot90(x, 1, [-3, -2])),
    "transpose": unary("transpose", "Transpose", lambda x: x.transpose(-3, -2).clone()),
    "grayscale_to_rgb": unary("grayscale_to_rgb", "Tile", lambda x: x.repeat(
        *[1] * (x.ndim - 1), 3)),
    "adjust_brightness": math.binary("adjust_brightness", "AdjustBrightness", dt.add, FLOATS),
}  # fmt: skip
