"""``torch.nn.modules``: the layers under the names of PyTorch's files. Of a layer that is lacking
this is said when it is asked for."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import disttrain as dt

from ....nn import hooks, state
from ....nn import modules as modules_of_nn
from ...publish import Shim

_FILES = {
    "activation": "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU "
    "LogSigmoid LogSoftmax Mish MultiheadAttention PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid "
    "Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold",
    "adaptive": "AdaptiveLogSoftmaxWithLoss",
    "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d "
    "LazyBatchNorm3d SyncBatchNorm",
    "channelshuffle": "ChannelShuffle",
    "container": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d "
    "LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d",
    "distance": "CosineSimilarity PairwiseDistance",
    "dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "flatten": "Flatten Unflatten",
    "fold": "Fold Unfold",
    "instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d "
    "LazyInstanceNorm2d LazyInstanceNorm3d",
    "linear": "Bilinear Identity LazyLinear Linear",
    "loss": "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss "
    "GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss MSELoss MarginRankingLoss "
    "MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d "
    "PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss",
    "normalization": "CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "padding": "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d "
    "ConstantPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d "
    "ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d",
    "pixelshuffle": "PixelShuffle PixelUnshuffle",
    "pooling": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d "
    "AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d "
    "FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d "
    "MaxUnpool2d MaxUnpool3d",
    "rnn": "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "sparse": "Embedding EmbeddingBag",
    "transformer": "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
    "TransformerEncoderLayer",
    "upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
}


class _ModuleFile(Shim):
    """``torch.nn.modules.module``, where programs that reset the hooks of all modules assign new
    tables of them."""

    _tables: ClassVar = {
        "_global_forward_hooks": hooks.FORWARD,
        "_global_forward_pre_hooks": hooks.FORWARD_PRE,
        "_global_backward_hooks": hooks.BACKWARD,
        "_global_backward_pre_hooks": hooks.BACKWARD_PRE,
    }

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._tables.get(name)
        if kind is None:
            super().__setattr__(name, value)
            return
        if kind == hooks.BACKWARD:
            hooks.set_everywhere(hooks.LAST_NODE, ())
        hooks.set_everywhere(kind, value.values())


# What PyTorch's files import, and programs import from them.
_IN_ALL = "Buffer Module Parameter UninitializedBuffer UninitializedParameter"
_ALSO = {
    "adaptive": "Linear ModuleList Sequential",
    "loss": "Linear PairwiseDistance",
    "transformer": "Dropout LayerNorm Linear ModuleList MultiheadAttention",
}


def _bases() -> dict[str, dict[str, Any]]:
    """By file: the base classes and helpers that programs ask for by their private names."""
    layers: Any = modules_of_nn
    return {
        "batchnorm": {
            "_BatchNorm": layers.batchnorm._BatchNorm,
            "_NormBase": layers.batchnorm._Norm,
        },
        "conv": {"_ConvNd": layers.conv._Conv, "_ConvTransposeNd": layers.conv._ConvTranspose},
        "dropout": {"_DropoutNd": layers.dropout._Dropout},
        "instancenorm": {"_InstanceNorm": layers.batchnorm._InstanceNorm},
        "loss": {"_Loss": layers.loss._Loss, "_WeightedLoss": layers.loss._WeightedLoss},
        "pooling": {"_MaxPoolNd": layers.pooling._MaxPool},
        "transformer": {
            "_get_activation_fn": layers.transformer._activation,
            "_get_clones": lambda module, n: dt.nn.ModuleList(
                [copy.deepcopy(module) for _ in range(n)]
            ),
        },
    }


def _ntuple(n: int, name: str = "parse") -> Any:
    """A function that gives ``n`` numbers: those that it is given, or one repeated."""

    def parse(value: int | tuple) -> tuple:
        return tuple(value) if hasattr(value, "__iter__") else (value,) * n

    parse.__name__ = name
    return parse


def _utils() -> Shim:
    return Shim("torch.nn.modules.utils").give(
        __all__=["consume_prefix_in_state_dict_if_present"],
        consume_prefix_in_state_dict_if_present=state.consume_prefix,
        _ntuple=_ntuple,
        _single=_ntuple(1, "_single"),
        _pair=_ntuple(2, "_pair"),
        _triple=_ntuple(3, "_triple"),
        _quadruple=_ntuple(4, "_quadruple"),
        _reverse_repeat_tuple=lambda t, n: tuple(x for x in reversed(t) for _ in range(n)),
    )


def modules() -> dict[str, Shim]:
    """``torch.nn.modules`` and its files."""
    nn, bases = dt.nn, _bases()
    root = "torch.nn.modules"
    out = {root: Shim(root).take(nn)}
    for name, names in _FILES.items():
        there = [n for n in names.split() if hasattr(nn, n)]
        imported = f"{_IN_ALL} {_ALSO.get(name, '')}".split()
        shim = out[f"{root}.{name}"] = Shim(f"{root}.{name}").take(nn, imported + there)
        shim.give(__all__=there, **bases.get(name, {}))
    out[f"{root}.module"] = (
        _ModuleFile(f"{root}.module")
        .take(nn, _IN_ALL.split())
        .take(nn.global_hooks)
        .give(_IncompatibleKeys=state._IncompatibleKeys, _EXTRA_STATE_KEY_SUFFIX=state.EXTRA)
    )
    out[f"{root}.lazy"] = Shim(f"{root}.lazy").give(LazyModuleMixin=modules_of_nn.lazy.LazyMixin)
    out[f"{root}.utils"] = _utils()
    return out
