"""``tf.math``, ``linalg``, ``bitwise``, ``nn``, ``signal``, ``image`` and what of them stands at
the top: tables of names, each with the operation's name in graphs, what computes it, the types that
it is there for and its parameters (``made``). Channels are last, as is TensorFlow's way."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import disttrain as dt

from ...arrays import frames, normalizing, pieces, ranks, ratios, slots, systems, totals
from ...arrays.general import words
from ...nn import activations, channels_last, images, logits
from ..tables import functions
from .dispatch import COMPLEX, FLOATS, binary, execute, matched, op, unary
from .errors import invalid
from .tensor import convert
from .types import as_dtype

INTS = frozenset("int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
NUMBERS, REAL, BOOL = COMPLEX | INTS, FLOATS | INTS, frozenset({"bool"})
_TYPES = {"C": COMPLEX, "F": FLOATS, "N": NUMBERS, "R": REAL, "B": BOOL, "I": INTS, "-": None,
          "RB": REAL | BOOL, "D": frozenset({"float32", "float64"})}  # fmt: skip
_PLACES: tuple[Any, ...] = (ratios, dt, dt.special, dt.nn.functional)


def made(text: str, places: Any, one: Callable = unary, outs: Any = None, **special: Any) -> Any:
    """The functions of a table, whose marks are types (``compat.tables.functions``)."""
    return functions(text, places, _TYPES, op, one, outs or {}, special)


_UNARY = made("""
    C exp expm1 log log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh
      acosh atanh sigmoid;
    F erf erfc erfinv ndtri lgamma digamma floor ceil rint=round bessel_i0=i0 bessel_i0e=i0e
      bessel_i1=i1 bessel_i1e=i1e softplus softsign log_sigmoid=logsigmoid is_nan=isnan is_inf=isinf
      is_finite=isfinite;
    N abs square negative:Neg=neg sign=sgn conj round; B logical_not; I invert_permutation;
    - real imag angle""", _PLACES, rint=dt.round)  # fmt: skip
_BINARY = {
    **made("""N multiply:Mul subtract:Sub add:AddV2 divide_no_nan:DivNoNan;
        R floordiv:FloorDiv=floor_divide""", _PLACES, functools.partial(binary, first=True)),
    **made("""
    R floormod:FloorMod=remainder truncatediv:TruncateDiv truncatemod:TruncateMod=fmod maximum
      minimum less less_equal greater greater_equal;
    N pow=power squared_difference; C multiply_no_nan:MulNoNan xlogy xlog1py xdivy;
    F atan2 igamma igammac polygamma zeta; - equal=eq not_equal=ne; D nextafter:NextAfter;
    B logical_and logical_or logical_xor""", _PLACES, binary, polygamma=words.polygamma),
}  # fmt: skip
BITS = {**made("""I bitwise_and bitwise_or bitwise_xor left_shift=bitwise_left_shift
                    right_shift=bitwise_right_shift""", (dt,), binary),
        **made("I invert=bitwise_not", (dt,))}  # fmt: skip


def divide(x: Any, y: Any, name: str | None = None) -> Any:
    """``x / y``; of integers in floating point (float32 for those of up to 16 bits)."""
    first = convert(x)
    kind, pair = first.dtype, [first, convert(y, hint=first.dtype)]
    if pair[1].dtype is not kind or kind.is_bool:
        raise TypeError(f"`x` and `y` must have the same dtype, got {kind!r} != {pair[1].dtype!r}.")
    if kind.is_integer:
        pair = [cast(t, "float32" if kind.size <= 2 else "float64") for t in pair]
    return execute("RealDiv", dt.div, pair, name, ("x", "y"))


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """``x`` in another type."""
    t, kind = convert(x), as_dtype(dtype)
    if t.dtype is kind:
        return t
    if kind.inner is None or t.dtype.inner is None:
        told = f"Cast {t.dtype.word} to {kind.word} is not supported [Op:Cast]"
        raise invalid(told, "UnimplementedError")
    return execute("Cast", lambda v: ratios.converted(v, kind.inner), [t], name)


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Any:
    """The sum of products that ``equation`` says."""
    found = matched("Einsum", list(inputs))
    return execute("Einsum", lambda *v: dt.einsum(equation, *v), found, kwargs.get("name"))


TopKV2 = namedtuple("TopKV2", ["values", "indices"])
_SEGMENTS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}
_SCAN = "x! axis=0 exclusive=False reverse=False"
_AXES = "input_tensor! axis=None keepdims=False"
_ROWS = made(f"""
    N reduce_sum:Sum=total reduce_mean:Mean=mean reduce_prod:Prod=product | {_AXES};
    R reduce_max:Max=greatest reduce_min:Min=least | {_AXES};
    B reduce_any:Any=some reduce_all:All=every | {_AXES};
    F reduce_logsumexp:LogSumExp=logsumexp reduce_variance:Variance=variance
      reduce_std:Std=deviation | {_AXES};
    C reduce_euclidean_norm:EuclideanNorm=length | {_AXES};
    RB argmax:ArgMax argmin:ArgMin | input! axis=None output_type@='int64';
    N cumsum cumprod cumulative_logsumexp | {_SCAN};
    - {" ".join(f"segment_{w}" for w in _SEGMENTS)} | data! segment_ids!;
    - {" ".join(f"unsorted_segment_{w}" for w in _SEGMENTS)} | data! segment_ids! num_segments;
    - add_n:AddN=same_shapes | inputs*;
    - top_k:TopKV2 | input! k=1 _sorted=True index_type@='int32';
    - in_top_k:InTopKV2 | targets! predictions! k;
    - bincount=counts | arr! weights!=None minlength=None maxlength=None dtype@='int32' _axis=None
      binary_output=False;
    - confusion_matrix | labels! predictions! num_classes=None weights!=None dtype@='int32';
    C l2_normalize:L2Normalize | x! axis=None epsilon=1e-12; - zero_fraction | value!;
    F softmax log_softmax | logits! axis=None""",
    (totals, slots, normalizing, ranks, ratios, dt), outs={"top_k": lambda found: TopKV2(*found)},
    softmax=lambda x, d: dt.softmax(x, dim=-1 if d is None else d),
    log_softmax=lambda x, d: dt.log_softmax(x, dim=-1 if d is None else d),
    **{f"{few}segment_{w}": functools.partial(slots.segment_reduce, how=how)
       for w, how in _SEGMENTS.items() for few in ("", "unsorted_")})  # fmt: skip
NAMES: dict[str, Any] = {
    **_UNARY, **_BINARY, **_ROWS, "divide": divide, "truediv": divide,
    "mod": _BINARY["floormod"], "accumulate_n": _ROWS["add_n"],
}  # fmt: skip
# What of it stands at the top, too.
TOP = """abs add acos acosh argmax argmin asin asinh atan atan2 atanh cos cosh cumsum divide equal
exp floor greater greater_equal less less_equal logical_and logical_not logical_or maximum minimum
multiply negative not_equal pow reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean
reduce_min reduce_prod reduce_sum round sigmoid sign sin sinh sqrt square subtract tan tanh truediv
add_n"""
PRODUCTS = made("""
    N matmul:MatMul | a~ b~ transpose_a=False transpose_b=False adjoint_a=False adjoint_b=False
      _a_is_sparse=False _b_is_sparse=False _output_type=None;
    - matvec:MatVec | a~ b~ transpose_a=False; - tensordot:TensorDot | a~ b~ axes""",
    (systems,)) | {"einsum": einsum}  # fmt: skip
EXTRA = {
    **{w: NAMES.pop(w) for w in ("truncatediv", "truncatemod")}, "cast": cast,
    **{w: f for w, f in PRODUCTS.items() if w != "matvec"},
    **made("- clip_by_value | t~ clip_value_min~ clip_value_max~", (ratios,)),
    **made("F complex", (dt,), binary),
}  # fmt: skip
matmul = PRODUCTS["matmul"]
LINALG: dict[str, Any] = {
    **PRODUCTS, **made("""
    - eye=eyes | num_rows num_columns=None batch_shape=None dtype@='float32';
    - solve:MatrixSolve | matrix~ rhs~ adjoint=False;
    - inv:MatrixInverse=inverse | input! adjoint=False;
    - cholesky | input!; - cholesky_solve | chol~ rhs~; - cross | a~ b~;
    - triangular_solve:MatrixTriangularSolve | matrix~ rhs~ lower=True adjoint=False;
    - svd | tensor! full_matrices=False compute_uv=True; - qr | input! full_matrices=False;
    - eigh:SelfAdjointEigV2 | tensor!; - slogdet:LogMatrixDeterminant | input!;
    - lstsq:MatrixSolveLs=least_squares | matrix~ rhs~ l2_regularizer=0.0 _fast=True;
    - norm | tensor! ord='euclidean' axis=None keepdims=False;
    - band_part:MatrixBandPart=band | input! num_lower num_upper;
    - diag:MatrixDiagV3=diag_embed | diagonal! k=0; - diag_part:MatrixDiagPartV3=diagonal | input!
      k=0; - set_diag:MatrixSetDiagV3=set_diagonal | input~ diagonal~ k=0;
    - matrix_transpose:Transpose=transposed | a! conjugate=False;
    - det:MatrixDeterminant logdet:LogDet trace expm=matrix_exp eigvalsh pinv matrix_rank=rank
      adjoint=adjoint_copy tensor_diag:Diag=diagflat tensor_diag_part:DiagPart=first_diagonal""",
    (systems, pieces, dt.linalg, dt)),
}  # fmt: skip


def global_norm(t_list: Any, name: str | None = None) -> Any:
    """The norm of all tensors together."""
    there = [convert(t) for t in t_list if t is not None]
    return execute("GlobalNorm", normalizing.global_norm, there, name)


def clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None):
    """The tensors scaled so that their norm together is at most ``clip_norm``, and that norm."""
    norm = global_norm(t_list) if use_norm is None else convert(use_norm)
    scale = clip_norm / NAMES["maximum"](norm, clip_norm)
    given = [None if t is None else convert(t) for t in t_list]
    return [None if t is None else t * cast(scale, t.dtype) for t in given], norm


CLIPS: dict[str, Any] = {
    **made("- clip_by_norm | t! clip_norm axes=None", (normalizing,)),
    "clip_by_global_norm": clip_by_global_norm,
}
_TWO = "strides padding data_format=None dilations=1"
NN: dict[str, Any] = {
    **made(f"""
    R relu relu6; F elu selu; - leaky_relu | features! alpha=0.2;
    F gelu | features! approximate=False; F silu swish:Silu=silu | features! beta=1.0;
    - crelu:Concat | features! axis=-1; - dropout | x! rate noise_shape=None _seed=None;
    F l2_loss:L2Loss | t!; - moments | x! axes _shift=None keepdims=False;
    - batch_normalization | x~ mean~ variance~ offset~ scale~ variance_epsilon;
    - bias_add | value~ bias~ data_format=None;
    F convolution=conv conv1d:Conv1D=conv conv2d:Conv2D=conv conv3d:Conv3D=conv
      | input~ filters~ strides=1 padding='VALID' data_format=None dilations=1;
    - depthwise_conv2d:DepthwiseConv2dNative=depthwise_conv | input~ filter~ {_TWO};
    - separable_conv2d=separable_conv | input~ depthwise_filter~ pointwise_filter~ {_TWO};
    - conv2d_transpose:Conv2DBackpropInput=conv_transpose | input~ filters~ output_shape
      strides padding='SAME' data_format='NHWC' dilations=1;
    F {" ".join(f"{w}_pool{n}:{w.title()}Pool{n.upper()}={w}_pool" for w in ("max", "avg")
                for n in ("", "1d", "2d", "3d"))} | input! ksize strides padding data_format=None;
    - space_to_depth depth_to_space | input! block_size _data_format='NHWC';
    - local_response_normalization:LRN=local_response_norm lrn:LRN=local_response_norm
      | input! depth_radius=5 bias=1 alpha=1 beta=0.5;
    F softmax_cross_entropy_with_logits=softmax_cross_entropy | labels~ logits~ axis=-1;
    - sparse_softmax_cross_entropy_with_logits=sparse_softmax_cross_entropy | labels! logits!;
    F sigmoid_cross_entropy_with_logits=sigmoid_cross_entropy | labels~ logits~;
    - weighted_cross_entropy_with_logits=weighted_cross_entropy | labels~ logits~ pos_weight;
    - log_poisson_loss=log_poisson | targets~ log_input~ _compute_full_loss=False""",
    (activations, channels_last, logits, normalizing, dt.nn.functional)),
    **{w: NAMES[w] for w in """softplus softsign softmax log_softmax l2_normalize
       zero_fraction sigmoid tanh top_k in_top_k""".split()},
}  # fmt: skip
SIGNAL: dict[str, Any] = made("""
    - fft:FFT ifft:IFFT fft2d:FFT2=fft2 ifft2d:IFFT2=ifft2 fftshift:FFTShift ifftshift:IFFTShift;
    - hann_window:Window hamming_window:Window | window_length periodic=True _dtype='float32';
    - rfft:RFFT irfft:IRFFT | input_tensor! fft_length=None;
    - frame | signal! frame_length frame_step pad_end=False pad_value=0 _axis=-1;
    - stft:STFT | signals! frame_length frame_step fft_length=None pad_end=False""",
    (frames, dt.fft, dt))  # fmt: skip
IMAGE: dict[str, Any] = {
    **made("F adjust_brightness=add", (dt,), binary), **made("""
    - resize | images! size method='bilinear' preserve_aspect_ratio=False antialias=False;
    - adjust_contrast | images! contrast_factor; - rgb_to_grayscale:RGBToGrayscale | images!;
    - convert_image_dtype=convert_dtype | image! dtype@ saturate=False;
    - central_crop | image! central_fraction;
    - crop_to_bounding_box | image! offset_height offset_width target_height target_width;
    - per_image_standardization=standardized | image!;
    - flip_left_right:ReverseV2 flip_up_down:ReverseV2 rot90 transpose grayscale_to_rgb:Tile""",
    (images, normalizing)),
}  # fmt: skip
