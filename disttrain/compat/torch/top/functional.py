"""``torch``'s own spellings of layers' functions: by position, and reductions by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt

from ....core import Tensor
from ....nn import functional as F
from ....nn.packed import PackedSequence
from ....nn.recurrence import STEPS

# Of which the arguments are the same.
_SAME = """adaptive_avg_pool1d bilinear celu celu_ channel_shuffle cosine_similarity hardshrink
pairwise_distance pixel_shuffle pixel_unshuffle prelu selu selu_ threshold threshold_ rrelu
rrelu_"""
_REDUCTIONS = ("none", "mean", "sum")
# Losses: the arguments before and behind ``reduction``, with their defaults.
_LOSSES: dict[str, tuple[str, str]] = {
    "binary_cross_entropy_with_logits": ("weight=None pos_weight=None", ""),
    "cosine_embedding_loss": ("margin=0.0", ""),
    "ctc_loss": ("blank=0", "zero_infinity=False"),
    "hinge_embedding_loss": ("margin=1.0", ""),
    "kl_div": ("", "log_target=False"),
    "margin_ranking_loss": ("margin=0.0", ""),
    "poisson_nll_loss": ("log_input full eps", ""),
    "triplet_margin_loss": ("margin=1.0 p=2.0 eps=1e-06 swap=False", ""),
}
_POSITIONAL = {"ctc_loss": 4, "cosine_embedding_loss": 3, "triplet_margin_loss": 3,
               "margin_ranking_loss": 3}  # fmt: skip


def _loss(name: str) -> Callable[..., Tensor]:
    """The loss, whose ``reduction`` is 0 (none), 1 (mean) or 2 (sum), in ``torch``'s place."""
    of_layers = getattr(F, name)
    before, behind = (text.split() for text in _LOSSES[name])
    order = [*before, "reduction", *behind]
    words = [word.partition("=")[0] for word in order]
    count = _POSITIONAL.get(name, 2)

    def run(*args: Any, **named: Any) -> Tensor:
        given = dict(zip(words, args[count:], strict=False)) | named
        how = given.pop("reduction", 0)
        how = how if isinstance(how, str) else _REDUCTIONS[how]
        return of_layers(*args[:count], **given, reduction=how)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"``nn.functional.{name}``; ``reduction``: 0 (none; the default), 1 (mean), 2."
    return run


def _dropout(name: str, inplace: bool) -> Callable[..., Tensor]:
    drop = {"dropout": F.dropout, "alpha_dropout": F.alpha_dropout,
            "feature_alpha_dropout": F.feature_alpha_dropout,
            "feature_dropout": F.dropout2d}[name]  # fmt: skip

    def run(input: Tensor, p: float, train: bool) -> Tensor:
        return drop(input, p, train, inplace)

    run.__name__ = run.__qualname__ = f"{name}_" if inplace else name
    run.__doc__ = f"``nn.functional.{drop.__name__}``" + (", in place." if inplace else ".")
    return run


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """``nn.functional.adaptive_max_pool1d`` with its places."""
    return F.adaptive_max_pool1d(input, output_size, return_indices=True)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``nn.functional.max_pool1d`` with its places."""
    return F.max_pool1d(
        input, kernel_size, stride or kernel_size, padding, dilation, ceil_mode, True
    )


def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """``nn.functional.pad`` with a constant."""
    return F.pad(input, pad, "constant", value)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``nn.functional.grid_sample``, with its words by number."""
    mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    outside = ("zeros", "border", "reflection")[padding_mode]
    return F.grid_sample(input, grid, mode, outside, align_corners)


def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """``nn.functional.affine_grid``."""
    return F.affine_grid(theta, size, align_corners)


# --- recurrences ------------------------------------------------------------------------------
def _cell(mode: str) -> Callable[..., Any]:
    step, _, count = STEPS[mode]

    def run(
        input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:  # fmt: skip
        states = (hx,) if count == 1 else tuple(hx)
        new = step(dt.nn.functional.linear(input, w_ih, b_ih), states, w_hh, b_hh)
        return new[0] if count == 1 else new

    run.__name__ = run.__qualname__ = f"{mode.lower()}_cell"
    run.__doc__ = f"One step of {mode} from its weights."
    return run


def _network(mode: str) -> Callable[..., tuple]:
    """A whole network from its weights, layer by layer, in the order of ``RNNBase``; packed
    sequences as (data, batch_sizes, ...)."""

    def run(
        input: Tensor, hx: Any, params: Any, *settings: Any, **named: Any
    ) -> tuple:  # (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        if settings and isinstance(settings[0], (list, tuple)):
            sizes, hx, params, settings = hx, params, settings[0], settings[1:]
            packed = PackedSequence(input, sizes)
            outputs, *last = _over_sequence(mode, packed, hx, params, *settings, **named)
            return (outputs.data, *last)
        return _over_sequence(mode, input, hx, params, *settings, **named)

    run.__name__ = run.__qualname__ = mode.lower()
    run.__doc__ = f"{mode} over a sequence, from its weights."
    return run


def _over_sequence(
    mode: str, input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool = False,
) -> tuple:  # fmt: skip
    states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
    hidden, settings = states[-1].shape[-1], {}
    if mode == "LSTM" and states[0].shape[-1] != hidden:
        settings["proj_size"] = states[0].shape[-1]
    if mode.startswith("RNN"):
        settings["nonlinearity"] = mode.rpartition("_")[2].lower()
    size = (input.data if isinstance(input, PackedSequence) else input).shape[-1]
    kind = {"LSTM": dt.nn.LSTM, "GRU": dt.nn.GRU}.get(mode, dt.nn.RNN)
    net = kind(
        size, hidden, num_layers=num_layers, bias=has_biases, batch_first=batch_first,
        dropout=dropout, bidirectional=bidirectional, device="meta", **settings,
    ).train(train)  # fmt: skip
    weights = dict(zip((name for name, _ in net.named_parameters()), params, strict=True))
    given = states[0] if len(states) == 1 else states
    outputs, last = dt.func.functional_call(net, weights, (input, given))
    return (outputs, *last) if isinstance(last, tuple) else (outputs, last)


def names() -> dict[str, Any]:
    """What ``torch`` gets from here."""
    found: dict[str, Any] = {name: getattr(F, name) for name in _SAME.split()}
    found |= {name: _loss(name) for name in _LOSSES}
    for name in ("alpha_dropout", "feature_alpha_dropout", "feature_dropout"):
        found |= {f"{name}_": _dropout(name, True), name: _dropout(name, False)}
    found["dropout_"] = _dropout("dropout", True)
    found |= {f"{mode.lower()}_cell": _cell(mode) for mode in STEPS}
    found |= {mode.lower(): _network(mode) for mode in STEPS}
    for function in (adaptive_max_pool1d, max_pool1d_with_indices, constant_pad_nd, grid_sampler,
                     affine_grid_generator):  # fmt: skip
        found[function.__name__] = function
    return found
