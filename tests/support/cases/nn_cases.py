"""One table of modules: how to make each, what to feed it. Several tests run down it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """``getattr(nn, name)(*args, **kwargs)`` called with ``inputs``.

    An input is a shape (to draw numbers for, which are differentiated) or an array as it is.
    """

    name: str
    args: tuple = ()
    inputs: tuple = ()
    kwargs: dict = field(default_factory=dict)
    call: dict = field(default_factory=dict)
    positive: bool = False  # inputs on (0.1, 0.9) instead of normal

    @property
    def id(self) -> str:
        extra = "-".join(f"{k}={v}" for k, v in {**self.kwargs, **self.call}.items())
        return "-".join(x for x in (self.name, "x".join(map(str, self.args)), extra) if x)

    def arrays(self) -> list[tuple[np.ndarray, bool]]:
        """The inputs, the same on every call, and whether each is differentiated."""
        rng = np.random.default_rng(7)
        return [
            (x, False) if isinstance(x, np.ndarray) else (self._draw(rng, x), True)
            for x in self.inputs
        ]

    def _draw(self, rng: Any, shape: tuple) -> np.ndarray:
        return rng.uniform(0.1, 0.9, shape) if self.positive else rng.normal(size=shape)


def _int(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


_SIGNS = np.array([1.0, -1.0, 1.0, -1.0])
_PLAIN = """ReLU ReLU6 LeakyReLU ELU CELU SELU GELU SiLU Mish Tanh Sigmoid Softplus Hardtanh
Hardswish Hardsigmoid LogSigmoid Tanhshrink Softsign Hardshrink Softshrink Identity
Flatten""".split()

ACTIVATIONS = [Case(name, inputs=((3, 4),)) for name in _PLAIN] + [
    Case("GELU", (), ((3, 4),), {"approximate": "tanh"}),
    Case("LeakyReLU", (0.2,), ((3, 4),)),
    Case("ELU", (0.7,), ((3, 4),)),
    Case("CELU", (0.7,), ((3, 4),)),
    Case("Softplus", (2.0, 5.0), ((3, 4),)),
    Case("PReLU", (), ((3, 4),)),
    Case("PReLU", (4,), ((3, 4, 2),)),
    Case("Threshold", (0.1, 20.0), ((3, 4),)),
    Case("Softmax", (1,), ((3, 4),)),
    Case("Softmin", (0,), ((3, 4),)),
    Case("LogSoftmax", (-1,), ((3, 4),)),
    Case("Softmax2d", (), ((2, 3, 2, 2),)),
    Case("GLU", (), ((3, 4),)),
]

LAYERS = [
    Case("Linear", (4, 5), ((3, 4),)),
    Case("Linear", (4, 5), ((4,),), {"bias": False}),
    Case("Linear", (4, 5), ((2, 3, 4),)),
    Case("Bilinear", (3, 4, 5), ((2, 3), (2, 4))),
    Case("Embedding", (6, 3), (_int([0, 5, 2], [2, 1, 1]),)),
    Case("Embedding", (6, 3), (_int([0, 5, 2]),), {"padding_idx": 2}),
    Case("LayerNorm", (4,), ((2, 3, 4),)),
    Case("LayerNorm", ((3, 4),), ((2, 3, 4),), {"bias": False}),
    Case("LayerNorm", (4,), ((2, 4),), {"elementwise_affine": False}),
    Case("RMSNorm", (4,), ((2, 3, 4),)),
    Case("RMSNorm", (4,), ((2, 4),), {"eps": 1e-3}),
    Case("GroupNorm", (2, 4), ((3, 4, 5),)),
    Case("BatchNorm1d", (4,), ((5, 4),)),
    Case("BatchNorm1d", (4,), ((3, 4, 2),)),
    Case("BatchNorm2d", (3,), ((2, 3, 4, 2),)),
    Case("BatchNorm2d", (3,), ((2, 3, 4, 2),), {"affine": False, "momentum": None}),
    Case("BatchNorm2d", (3,), ((2, 3, 2, 2),), {"track_running_stats": False}),
    Case("BatchNorm3d", (2,), ((2, 2, 2, 2, 2),)),
    Case("InstanceNorm1d", (3,), ((2, 3, 4),)),
    Case("InstanceNorm2d", (3,), ((2, 3, 3, 2),), {"affine": True, "track_running_stats": True}),
    Case("LocalResponseNorm", (3,), ((2, 4, 3),), {"alpha": 0.5}),
]

CONVOLUTIONS = [
    Case("Conv1d", (3, 4, 3), ((2, 3, 7),), {"padding": 1, "stride": 2}),
    Case("Conv1d", (2, 4, 2), ((2, 2, 6),), {"padding": "same", "groups": 2}),
    Case("Conv2d", (3, 4, 3), ((2, 3, 6, 5),)),
    Case("Conv2d", (3, 4, (3, 2)), ((3, 6, 5),), {"bias": False, "stride": (2, 1)}),
    Case("Conv2d", (4, 6, 3), ((2, 4, 6, 6),), {"padding": 1, "groups": 2, "dilation": 2}),
    Case("Conv2d", (2, 2, 3), ((1, 2, 4, 4),), {"padding": 1, "padding_mode": "reflect"}),
    Case("Conv2d", (2, 2, 3), ((1, 2, 4, 4),), {"padding": "same", "padding_mode": "circular"}),
    Case("Conv3d", (2, 3, 2), ((2, 2, 3, 4, 3),), {"padding": 1, "stride": (2, 1, 1)}),
    Case("ConvTranspose1d", (3, 2, 3), ((2, 3, 4),), {"stride": 2}),
    Case("ConvTranspose2d", (4, 2, 3), ((2, 4, 3, 3),), {"stride": 2, "padding": 1,
                                                         "output_padding": 1}),
    Case("ConvTranspose2d", (4, 4, 2), ((1, 4, 3, 2),), {"groups": 2, "dilation": 2}),
    Case("ConvTranspose2d", (2, 3, 2), ((1, 2, 3, 2),), {"dilation": 2, "output_padding": 1}),
    Case("ConvTranspose2d", (2, 2, 2), ((1, 2, 3, 3),), {"padding": 2, "stride": 3}),
    Case("ConvTranspose3d", (2, 2, 2), ((1, 2, 2, 2, 2),), {"stride": 2}),
]  # fmt: skip

POOLING = [
    Case("MaxPool1d", (2,), ((2, 3, 6),)),
    Case("MaxPool2d", (2,), ((2, 3, 4, 6),)),
    Case("MaxPool2d", (3, 2, 1), ((2, 2, 5, 6),), {"ceil_mode": True}),
    Case("MaxPool2d", (2, 1), ((2, 2, 5, 5),), {"dilation": 2}),
    Case("AvgPool1d", (2,), ((2, 3, 6),)),
    Case("AvgPool2d", (2,), ((2, 3, 4, 6),)),
    Case("AvgPool2d", (3, 2, 1), ((2, 2, 5, 5),), {"count_include_pad": False}),
    Case("AvgPool2d", (3, 2), ((2, 2, 6, 6),), {"ceil_mode": True}),
    Case("AdaptiveAvgPool1d", (3,), ((2, 2, 7),)),
    Case("AdaptiveAvgPool2d", (1,), ((2, 3, 4, 4),)),
    Case("AdaptiveAvgPool2d", ((3, None),), ((2, 3, 5, 4),)),
    Case("AdaptiveMaxPool1d", (3,), ((2, 2, 7),)),
    Case("AdaptiveMaxPool2d", ((3, 2),), ((2, 2, 5, 4),)),
]

SHAPES = [
    Case("Flatten", (0, 1), ((2, 3, 4),)),
    Case("Unflatten", (1, (2, 3)), ((2, 6),)),
    Case("Upsample", (), ((1, 2, 3, 3),), {"scale_factor": 2}),
    Case("Upsample", ((5, 2),), ((1, 2, 3, 3),), {"mode": "bilinear"}),
    Case("Upsample", (), ((1, 2, 3, 3),), {"scale_factor": 2.5, "mode": "bilinear"}),
    Case("Upsample", ((5, 7),), ((1, 1, 3, 4),), {"mode": "bilinear", "align_corners": True}),
    Case("Upsample", (6,), ((1, 2, 4),), {"mode": "linear"}),
    Case("Upsample", ((7, 5),), ((1, 1, 4, 4),), {"mode": "bicubic"}),
    Case("Upsample", ((4, 3, 2),), ((1, 1, 2, 2, 3),), {"mode": "trilinear"}),
    Case("PixelShuffle", (2,), ((1, 8, 2, 3),)),
    Case("PixelUnshuffle", (2,), ((1, 2, 4, 6),)),
    Case("ZeroPad2d", ((1, 0, 2, 1),), ((1, 2, 3, 3),)),
    Case("ZeroPad2d", ((-1, 2, 0, 1),), ((1, 2, 3, 3),)),
    Case("ConstantPad1d", (2, 3.5), ((1, 2, 3),)),
    Case("ReflectionPad2d", (2,), ((1, 2, 3, 4),)),
    Case("ReflectionPad1d", ((1, 2),), ((2, 3),)),
    Case("ReplicationPad2d", ((1, 2, 0, 3),), ((1, 2, 3, 3),)),
    Case("CircularPad2d", (1,), ((1, 2, 3, 3),)),
    Case("Unfold", ((2, 3),), ((2, 2, 4, 5),), {"padding": 1, "stride": (1, 2)}),
    Case("Fold", ((4, 5), (2, 2)), ((2, 8, 6),), {"stride": (2, 1), "padding": (1, 0),
                                                  "dilation": (1, 3)}),
]  # fmt: skip

LOSSES = [
    Case("MSELoss", (), ((3, 4), (3, 4))),
    Case("MSELoss", (), ((3, 4), (3, 4)), {"reduction": "sum"}),
    Case("L1Loss", (), ((3, 4), (3, 4)), {"reduction": "none"}),
    Case("SmoothL1Loss", (), ((3, 4), (3, 4)), {"beta": 0.5}),
    Case("HuberLoss", (), ((3, 4), (3, 4)), {"delta": 0.5}),
    Case("CrossEntropyLoss", (), ((3, 4), _int(0, 3, 1))),
    Case("CrossEntropyLoss", (), ((3, 4), _int(0, -100, 1)), {"reduction": "sum"}),
    Case("CrossEntropyLoss", (), ((3, 4), _int(0, 2, 1)), {"ignore_index": 2}),
    Case("CrossEntropyLoss", (), ((3, 4), _int(0, 2, 1)), {"label_smoothing": 0.1}),
    Case("CrossEntropyLoss", (), ((4,), np.array(2))),
    Case("CrossEntropyLoss", (), ((2, 4, 3), _int([0, 1, 2], [3, 3, -100]))),
    Case("CrossEntropyLoss", (), ((3, 4), (3, 4)), {"label_smoothing": 0.2}),
    Case("NLLLoss", (), ((3, 4), _int(0, 3, 1))),
    Case("NLLLoss", (), ((2, 4, 3), _int([0, 1, 2], [3, 3, -100])), {"reduction": "none"}),
    Case("BCELoss", (), ((3, 4), (3, 4)), positive=True),
    Case("BCEWithLogitsLoss", (), ((3, 4), (3, 4))),
    Case("KLDivLoss", (), ((3, 4), (3, 4)), {"reduction": "batchmean"}, positive=True),
    Case("KLDivLoss", (), ((3, 4), (3, 4)), {"log_target": True, "reduction": "sum"}),
    Case("PoissonNLLLoss", (), ((3, 4), (3, 4)), {"full": True}, positive=True),
    Case("GaussianNLLLoss", (), ((3, 4), (3, 4), (3, 4)), {"full": True}, positive=True),
    Case("SoftMarginLoss", (), ((4,), _SIGNS)),
    Case("HingeEmbeddingLoss", (), ((4,), _SIGNS)),
    Case("MarginRankingLoss", (0.3,), ((4,), (4,), _SIGNS)),
    Case("CosineEmbeddingLoss", (0.1,), ((4, 3), (4, 3), _SIGNS)),
    Case("TripletMarginLoss", (), ((4, 3), (4, 3), (4, 3)), {"swap": True}),
    Case("CosineSimilarity", (), ((4, 3), (4, 3))),
    Case("PairwiseDistance", (), ((4, 3), (4, 3))),
]

_ATTEND = {"need_weights": False}
RECURRENT = [
    Case("RNN", (3, 4, 2), ((5, 2, 3), (2, 2, 4))),
    Case("RNN", (3, 4), ((5, 3),), {"nonlinearity": "relu"}),
    Case("GRU", (3, 4), ((2, 5, 3),), {"batch_first": True, "bidirectional": True}),
    Case("GRU", (3, 4, 2), ((5, 2, 3),), {"bias": False}),
    Case("LSTM", (3, 4, 2), ((5, 2, 3),), {"bidirectional": True}),
    Case("LSTM", (3, 4), ((2, 5, 3),), {"batch_first": True}),
    Case("RNNCell", (3, 4), ((2, 3), (2, 4))),
    Case("GRUCell", (3, 4), ((2, 3),)),
    Case("LSTMCell", (3, 4), ((3,),)),
    Case("MultiheadAttention", (4, 2), ((3, 2, 4), (5, 2, 4), (5, 2, 4))),
    Case("MultiheadAttention", (4, 2), ((2, 3, 4), (2, 5, 3), (2, 5, 6)),
         {"kdim": 3, "vdim": 6, "batch_first": True}, _ATTEND),
    Case("MultiheadAttention", (4, 2), ((3, 4), (3, 4), (3, 4)), {"bias": False}),
    Case("TransformerEncoderLayer", (4, 2, 8, 0.0), ((3, 2, 4),)),
    Case("TransformerEncoderLayer", (4, 2, 8, 0.0), ((2, 3, 4),),
         {"norm_first": True, "batch_first": True, "activation": "gelu"}),
    Case("TransformerDecoderLayer", (4, 2, 8, 0.0), ((3, 2, 4), (5, 2, 4))),
    Case("Transformer", (4, 2, 1, 1, 8, 0.0), ((3, 2, 4), (2, 2, 4))),
]  # fmt: skip

ALL = ACTIVATIONS + LAYERS + CONVOLUTIONS + POOLING + SHAPES + LOSSES + RECURRENT
