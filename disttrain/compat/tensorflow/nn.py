"""``tf.nn``, ``tf.signal`` and ``tf.image``: tables over what computes, with TensorFlow's order of
dimensions (channels last) and padding."""

from __future__ import annotations

from typing import Any

import disttrain as dt

from ...arrays import frames, normalizing
from ...nn import activations, channels_last, images, logits
from . import math
from .dispatch import execute
from .math import made
from .tensor import convert
from .variable import gather_rows


def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Any:
    """The rows of ``params`` at ``ids``."""
    found = gather_rows(params, ids, name=name)
    return found if max_norm is None else TOP["clip_by_norm"](found, max_norm, -1)


def global_norm(t_list: Any, name: str | None = None) -> Any:
    """The norm of all tensors together."""
    there = [convert(t) for t in t_list if t is not None]
    return execute("GlobalNorm", normalizing.global_norm, there, name)


def clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None):
    """The tensors scaled so that their norm together is at most ``clip_norm``, and that norm."""
    norm = global_norm(t_list) if use_norm is None else convert(use_norm)
    scale = clip_norm / math.NAMES["maximum"](norm, clip_norm)
    given = [None if t is None else convert(t) for t in t_list]
    return [None if t is None else t * math.cast(scale, t.dtype) for t in given], norm


TOP: dict[str, Any] = {
    **made("- clip_by_norm | t! clip_norm axes=None", (normalizing,)),
    "clip_by_global_norm": clip_by_global_norm,
}
_TWO = "strides padding data_format=None dilations=1"
NAMES: dict[str, Any] = {
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
    **{w: math.NAMES[w] for w in """softplus softsign softmax log_softmax l2_normalize
       zero_fraction sigmoid tanh top_k in_top_k""".split()},
    "embedding_lookup": embedding_lookup,
}  # fmt: skip
SIGNAL: dict[str, Any] = made("""
    - fft:FFT ifft:IFFT fft2d:FFT2=fft2 ifft2d:IFFT2=ifft2 fftshift:FFTShift ifftshift:IFFTShift;
    - hann_window:Window hamming_window:Window | window_length periodic=True _dtype='float32';
    - rfft:RFFT irfft:IRFFT | input_tensor! fft_length=None;
    - frame | signal! frame_length frame_step pad_end=False pad_value=0 _axis=-1;
    - stft:STFT | signals! frame_length frame_step fft_length=None pad_end=False""",
    (frames, dt.fft, dt))  # fmt: skip
IMAGE: dict[str, Any] = {
    **made("F adjust_brightness=add", (dt,), math.binary), **made("""
    - resize | images! size method='bilinear' preserve_aspect_ratio=False antialias=False;
    - adjust_contrast | images! contrast_factor; - rgb_to_grayscale:RGBToGrayscale | images!;
    - convert_image_dtype=convert_dtype | image! dtype@ saturate=False;
    - central_crop | image! central_fraction;
    - crop_to_bounding_box | image! offset_height offset_width target_height target_width;
    - per_image_standardization=standardized | image!;
    - flip_left_right:ReverseV2 flip_up_down:ReverseV2 rot90 transpose grayscale_to_rgb:Tile""",
    (images, normalizing)),
}  # fmt: skip
