"""``torch.autograd`` and what is below it."""

from __future__ import annotations

import disttrain as dt

from ...autograd import forward_ad
from ...core.backward.function import FunctionCtx
from ..publish import Shim
from .top import legacy, spelled

_FLOW = frozenset(
    {"associative_scan", "cond", "map", "scan", "while_loop"}
)  # which stand elsewhere in PyTorch


class _ForwardAd(Shim):
    """``torch.autograd.forward_ad``, where programs look up whether a level is open."""

    @property
    def _current_level(self) -> int:
        return 0 if forward_ad.is_open() else -1


def autograd_modules() -> dict[str, Shim]:
    """``torch.autograd`` and its modules."""
    source = dt.autograd
    autograd = (
        Shim("torch.autograd").take(source).give(Variable=legacy.variable(), **spelled.autograd())
    )
    function = (
        Shim("torch.autograd.function")
        .take(source)
        .give(FunctionCtx=FunctionCtx, InplaceFunction=legacy.InplaceFunction)
    )
    checks = ["gradcheck", "gradgradcheck", "GradcheckError"]
    return {
        "torch.autograd": autograd,
        "torch.autograd.variable": Shim("torch.autograd.variable").take(autograd, ["Variable"]),
        "torch.autograd.function": function,
        "torch.autograd.grad_mode": Shim("torch.autograd.grad_mode").take(source),
        "torch.autograd.anomaly_mode": Shim("torch.autograd.anomaly_mode").take(
            source, ["detect_anomaly", "set_detect_anomaly"]
        ),
        "torch.autograd.functional": Shim("torch.autograd.functional").take(source.functional),
        "torch.autograd.forward_ad": _ForwardAd("torch.autograd.forward_ad").take(forward_ad),
        "torch.autograd.graph": Shim("torch.autograd.graph")
        .take(source.graph)
        .give(**spelled.graph()),
        "torch.autograd.gradcheck": Shim("torch.autograd.gradcheck").take(source, checks),
        "torch.autograd.profiler": Shim("torch.autograd.profiler").take(dt.profiler),
        "torch.profiler": Shim("torch.profiler")
        .take(dt.profiler, [n for n in dt.profiler.__all__ if n not in _OWN_PROFILES])
        .give(profile=dt.profiler.Profiler),
    }


_OWN_PROFILES = frozenset(
    ("Averages", "Event", "Profiler", "named_comm", "open_profiles", "profile")
)
