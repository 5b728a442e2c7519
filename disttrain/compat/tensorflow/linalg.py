"""``tf.linalg``, ``tf.signal`` and ``tf.image``: tables over what computes."""

from __future__ import annotations

from typing import Any

import disttrain as dt

from ...arrays import frames, systems
from ...arrays.normalizing import standardized
from ...nn import images
from . import arrays, math
from .dispatch import FLOATS, op, table, unary

_L: Any = dt.linalg
_fft: Any = dt.fft
_ROWS: dict[str, tuple] = {
    "solve": ("MatrixSolve", systems.solve, "matrix~ rhs~ adjoint=False"),
    "inv": ("MatrixInverse", systems.inverse, "input! adjoint=False"),
    "cholesky": ("Cholesky", systems.cholesky, "input!"),
    "triangular_solve": ("MatrixTriangularSolve", systems.triangular_solve,
                         "matrix~ rhs~ lower=True adjoint=False"),
    "cholesky_solve": ("CholeskySolve", lambda chol, rhs: dt.cholesky_solve(rhs, chol),
                       "chol~ rhs~"),
    "svd": ("Svd", systems.svd, "tensor! full_matrices=False compute_uv=True"),
    "qr": ("Qr", lambda x, whole: tuple(_L.qr(x, mode="complete" if whole else "reduced")),
           "input! full_matrices=False"),
    "eigh": ("SelfAdjointEigV2", lambda x: tuple(_L.eigh(x)), "tensor!"),
    "slogdet": ("LogMatrixDeterminant", lambda x: tuple(_L.slogdet(x)), "input!"),
    "lstsq": ("MatrixSolveLs", systems.least_squares,
              "matrix~ rhs~ l2_regularizer=0.0 _fast=True"),
    "norm": ("Norm", systems.norm, "tensor! ord='euclidean' axis=None keepdims=False"),
    "band_part": ("MatrixBandPart", systems.band, "input! num_lower num_upper"),
    "diag": ("MatrixDiagV3", dt.diag_embed, "diagonal! k=0"),
    "diag_part": ("MatrixDiagPartV3", lambda x, k: dt.diagonal(x, k, -2, -1).clone(),
                  "input! k=0"),
    "set_diag": ("MatrixSetDiagV3", systems.set_diagonal, "input~ diagonal~ k=0"),
    "matrix_transpose": ("Transpose", systems.transposed, "a! conjugate=False"),
    "cross": ("Cross", _L.cross, "a~ b~"),
}  # fmt: skip
LINALG: dict[str, Any] = {
    **table(_ROWS), "eye": arrays.NAMES["eye"], "matmul": math.matmul, "matvec": math.matvec,
    "einsum": math.einsum, "tensordot": math.tensordot,
    **{w: unary(w, kind, fn) for w, kind, fn in (
        ("det", "MatrixDeterminant", _L.det), ("logdet", "LogDet", dt.logdet),
        ("trace", "Trace", lambda x: dt.diagonal(x, 0, -2, -1).sum(-1)),
        ("expm", "Expm", dt.matrix_exp), ("eigvalsh", "Eigvalsh", _L.eigvalsh),
        ("pinv", "Pinv", _L.pinv),
        ("matrix_rank", "MatrixRank", lambda x: _L.matrix_rank(x).int()),
        ("adjoint", "Adjoint", lambda x: systems.adjoint(x).clone()),
        ("tensor_diag", "Diag", dt.diagflat),
        ("tensor_diag_part", "DiagPart", lambda x: dt.diagonal(x).clone()))},
}  # fmt: skip


def _window(word: str) -> Any:
    fn = getattr(dt, word)
    return op(word, "Window", lambda n, periodic: fn(n, periodic=bool(periodic)),
              "window_length periodic=True _dtype='float32'")  # fmt: skip


SIGNAL: dict[str, Any] = {
    **{w.replace("2", "2d"): unary(w, w.upper(), getattr(_fft, w))
       for w in ("fft", "ifft", "fft2", "ifft2")},
    **{w: unary(w, kind, getattr(_fft, w))
       for w, kind in (("fftshift", "FFTShift"), ("ifftshift", "IFFTShift"))},
    **{w: _window(w) for w in ("hann_window", "hamming_window")},
    **table({
        "rfft": ("RFFT", frames.rfft, "input_tensor! fft_length=None"),
        "irfft": ("IRFFT", frames.irfft, "input_tensor! fft_length=None"),
        "frame": ("Frame", frames.frame,
                  "signal! frame_length frame_step pad_end=False pad_value=0 _axis=-1"),
        "stft": ("STFT", frames.stft,
                 "signals! frame_length frame_step fft_length=None pad_end=False"),
    }),
}  # fmt: skip
IMAGE: dict[str, Any] = {
    **table({
        "resize": ("Resize", images.resize, "images! size method='bilinear' "
                   "preserve_aspect_ratio=False antialias=False"),
        "adjust_contrast": ("AdjustContrast", images.adjust_contrast, "images! contrast_factor"),
        "convert_image_dtype": ("ConvertImageDtype", images.converted,
                                "image! dtype@ saturate=False"),
        "central_crop": ("CentralCrop", images.central_crop, "image! central_fraction"),
        "crop_to_bounding_box": ("CropToBoundingBox", images.crop, "image! offset_height "
                                 "offset_width target_height target_width"),
        "rgb_to_grayscale": ("RGBToGrayscale", images.gray, "images!"),
        "per_image_standardization": ("PerImageStandardization", standardized, "image!"),
    }),
    "adjust_brightness": math.binary("adjust_brightness", "AdjustBrightness", dt.add, FLOATS),
    **{w: unary(w, kind, fn) for w, kind, fn in (
        ("flip_left_right", "ReverseV2", lambda x: dt.flip(x, [-2])),
        ("flip_up_down", "ReverseV2", lambda x: dt.flip(x, [-3])),
        ("rot90", "Rot90", lambda x: dt.rot90(x, 1, [-3, -2])),
        ("transpose", "Transpose", lambda x: x.transpose(-3, -2).clone()),
        ("grayscale_to_rgb", "Tile", lambda x: x.repeat(*[1] * (x.ndim - 1), 3)))},
}  # fmt: skip
