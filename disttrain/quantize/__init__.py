"""Quantization: weights and activations as 8-bit integers, under PyTorch's names.

    quantize_dynamic(model)                         weights once, activations as they come
    quantize_(model, Int8WeightOnlyConfig())        weights alone, in place
    prepare(model); convert(model)                  by calibration; prepare_qat: by training

``types``, ``grids``, ``tensor`` and ``functions`` are quantized tensors; ``observers`` (with
``histogram``), ``fake`` and ``qconfig`` find their grids; ``layers`` compute with them;
``mappings``, ``fusing``, ``workflow`` and ``configs`` change models. The primitives are those of
``ops/primitives/quantization.py``, so that quantized models are compiled and exported as others.
"""

from .configs import (
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    int8_dynamic_activation_int8_weight,
    int8_weight_only,
    quantize_,
)
from .fake import *
from .functions import *
from .fusing import *
from .layers.elements import DeQuantStub, FloatFunctional, QFunctional, QuantStub, QuantWrapper
from .mappings import (
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
)
from .observers import *
from .qconfig import *
from .tensor import QuantizedTensor
from .types import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    qint32,
    qscheme,
    quint8,
)
from .workflow import *
