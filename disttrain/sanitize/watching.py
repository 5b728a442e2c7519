"""Where programs are looked at: functions that stand in for some of this package's own.

While any rank of the process sanitizes, they stand in for calls of modules, backward, optimizers,
schedulers, loaders, losses, and the like, and ask whether the calling thread is looked at. When no
rank does, all is as it was.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..amp.grad_scaler import GradScaler
from ..compile.compiled import Compiled
from ..core.backward import autograd
from ..data import loader, sampler
from ..distributed.fsdp.module import FSDPModule
from ..nn import Module, functional
from ..nn.convert import Convert
from ..nn.functional import loss as losses
from ..nn.utils import clip
from ..ops.primitives import moving, random
from ..optim import cycles, lr_scheduler, optimizer, phases, scheduler
from ..optim.optimizer import Optimizer
from ..stand_ins import StandIns
from .session import active, adopt

LOSSES = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss",
    "soft_margin_loss",
)  # fmt: skip
_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")


def _set_up(places: StandIns) -> None:
    places.put(Module, "__call__", _call)
    places.put(FSDPModule, "__call__", _call)  # which gathers parameters before
    places.put(Convert, "zero_grad", _zero_module)
    places.put(autograd, "_drive", _drive)
    places.put(Module, "register_parameter", _registered)
    places.put(Optimizer, "__init__", _made)
    places.put(optimizer, "_with_hooks", _later_steps)
    for kind in _below(Optimizer):
        if "step" in kind.__dict__:
            places.put(kind, "step", _step)
    places.put(Optimizer, "zero_grad", _zero_optimizer)
    for kind in _schedulers():
        places.put(kind, "step", _scheduled)
    for name in ("scale", "unscale_", "step"):
        places.put(GradScaler, name, functools.partial(_scaler, name))
    places.put(loader.DataLoader, "__iter__", _opened)
    for kind in (loader._LocalIterator, loader._WorkerIterator):
        places.put(kind, "__next__", _next)
    places.put(sampler.DistributedSampler, "__iter__", _sampled)
    places.put(sampler.DistributedSampler, "set_epoch", _chosen)
    places.put(Compiled, "_first", _captured)
    places.put(Compiled, "__call__", _compiled)
    places.put(moving.move, "forward", _moved)
    for prim in (random.dropout_mask, random.native_dropout):
        places.put(prim, "forward", _dropped)
    for name in ("alpha_dropout", "feature_alpha_dropout"):
        _everywhere(places, functional, name, _dropped_alpha)
    for name in _CLIPS:
        _everywhere(places, clip, name, _clipped)
    for name in LOSSES:
        _everywhere(places, losses, name, functools.partial(_loss, name))


STAND_INS = StandIns(_set_up)  # of all ranks of the process that sanitize


def _everywhere(places: StandIns, home: Any, name: str, make: Callable[[Any], Any]) -> None:
    """A function, in all modules that have it by its name: also those of the program."""
    own = getattr(home, name)
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is own:
            places.put(module, name, make)


def _schedulers() -> list[type]:
    kinds: list[type] = [scheduler.LRScheduler]
    for module in (cycles, phases, lr_scheduler):
        kinds += [
            c for c in vars(module).values()
            if isinstance(c, type) and "step" in c.__dict__ and c.__name__ != "Optimizer"
        ]  # fmt: skip
    return list(dict.fromkeys(kinds))


# --- modules and backward -------------------------------------------------------------------------


def _call(own: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        to = active()
        if to is None:
            return own(self, *args, **kwargs)
        row, call = to.enter(self, args, kwargs)
        out = None
        try:
            out = own(self, *args, **kwargs)
        finally:
            to.leave(self, row, call, out)
        return out

    return __call__


def _drive(own: Callable[..., Any]) -> Callable[..., Any]:
    def drive(walk: Any, roots: tuple, cotangents: tuple, create_graph: bool) -> None:
        to = active()
        found = None if to is None else to.before_walk(walk, roots)
        if to is None or found is None:
            return own(walk, roots, cotangents, create_graph)
        own(walk, roots, cotangents, create_graph)
        to.after_walk(found)

    return drive


# --- optimizers, schedulers, scalers --------------------------------------------------------------


def _zero_module(own: Callable[..., Any]) -> Callable[..., Any]:
    def zero_grad(self: Module, *args: Any, **kwargs: Any) -> Any:
        to = active()
        if to is not None:
            to.cleared({id(p) for p in self.parameters()})
        return own(self, *args, **kwargs)

    return zero_grad


def _made(own: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        own(self, *args, **kwargs)
        to = active()
        if to is not None:
            to.optimizer(self)

    return __init__


def _zero_optimizer(own: Callable[..., Any]) -> Callable[..., Any]:
    def zero_grad(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        to = active()
        if to is not None:
            to.cleared(to.optimizer(self).ids)
        return own(self, *args, **kwargs)

    return zero_grad


def _below(kind: type) -> list[type]:
    """A class and all classes that are made of it."""
    found = [kind]
    below: list[type] = kind.__subclasses__()
    for each in below:
        found += _below(each)
    return list(dict.fromkeys(found))


def _registered(own: Callable[..., Any]) -> Callable[..., Any]:
    def register_parameter(self: Module, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        to, param = active(), _argument(1, "param", args, kwargs)
        if to is not None and param is not None:
            to.tell("registered", param)

    return register_parameter


def _later_steps(own: Callable[..., Any]) -> Callable[..., Any]:
    """Of optimizers that the program defines from now on."""

    def with_hooks(step: Callable) -> Callable:
        return functools.wraps(step)(_step(own(step)))

    return with_hooks


def _step(own: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        to = active()
        if to is None or self._stepping:
            if to is None:
                adopt()
            return own(self, *args, **kwargs)
        to.before_step(self, args, kwargs)
        out = own(self, *args, **kwargs)
        to.after_step(self)
        return out

    return step


def _scheduled(own: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        to = active()
        inside = to is None or to.__dict__.get("scheduling") or getattr(self, "_is_initial", False)
        if to is None or inside:
            return own(self, *args, **kwargs)
        to.scheduling = True  # type: ignore[attr-defined]
        try:
            to.tell("scheduled", self)
            return own(self, *args, **kwargs)
        finally:
            to.scheduling = False  # type: ignore[attr-defined]

    return step


def _scaler(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: GradScaler, *args: Any, **kwargs: Any) -> Any:
        to = active()
        given = _argument(0, "optimizer", args, kwargs)
        if to is None or not self._enabled:
            return own(self, *args, **kwargs)
        if name == "step" and given is not None:
            to.optimizer(given).skipping = True
            to.tell("scaler_step", self, given)
        elif name == "unscale_" and given is not None:
            to.tell("unscaled", self, to.optimizer(given))
        out = own(self, *args, **kwargs)
        if name == "scale":
            to.tell("scaled", self, out)
        return out

    return method


def _clipped(own: Callable[..., Any]) -> Callable[..., Any]:
    def clip_(*args: Any, **kwargs: Any) -> Any:
        to = active()
        params = _argument(0, "parameters", args, kwargs)
        limit = _argument(1, "max_norm", args, kwargs)
        limit = kwargs.get("clip_value") if limit is None else limit
        if to is not None and params is not None and limit is not None:
            params = clip._tensors(params)  # (a generator gives them once)
            args = (params, *args[1:]) if args else args
            kwargs = kwargs if args else {**kwargs, "parameters": params}
            to.tell("clipped", params, limit)
        return own(*args, **kwargs)

    return clip_


def _argument(place: int, name: str, args: tuple, kwargs: dict) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


# --- data -----------------------------------------------------------------------------------------


def _opened(own: Callable[..., Iterator]) -> Callable[..., Iterator]:
    def __iter__(self: Any) -> Iterator:  # noqa: N807
        found = own(self)
        to = active()
        if to is not None:
            found.__dict__["_sanitized"] = weakref.ref(self)
            to.tell("opened", self)
        return found

    return __iter__


def _next(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __next__(self: Any) -> Any:  # noqa: N807
        to = active()
        if to is None:
            return own(self)
        source = self.__dict__.get("_sanitized")
        try:
            value = own(self)
        except StopIteration:
            to.tell("exhausted", None if source is None else source())
            raise
        to.loader = source
        to.tell("batch", value)
        return value

    return __next__


def _sampled(own: Callable[..., Iterator]) -> Callable[..., Iterator]:
    def __iter__(self: Any) -> Iterator:  # noqa: N807
        to = active()
        if to is not None:
            to.tell("sampled", self)
        return own(self)

    return __iter__


def _chosen(own: Callable[..., Any]) -> Callable[..., Any]:
    def set_epoch(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        to = active()
        if to is not None:
            to.tell("chosen", self)

    return set_epoch


# --- functions ------------------------------------------------------------------------------------


def _loss(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        to = active()
        if to is not None:
            to.tell("loss", name, _argument(1, "target", args, kwargs))
        return own(*args, **kwargs)

    return function


def _dropped(own: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **params: Any) -> Any:
        to = active()
        if to is not None:
            to.tell("dropped")
        return own(*args, **params)

    return forward


def _dropped_alpha(own: Callable[..., Any]) -> Callable[..., Any]:
    def alpha(*args: Any, **kwargs: Any) -> Any:
        to = active()
        if to is not None and _argument(2, "training", args, kwargs):
            to.tell("dropped")
        return own(*args, **kwargs)

    return alpha


def _moved(own: Callable[..., Any]) -> Callable[..., Any]:
    def forward(a: Any, **params: Any) -> Any:
        session = active()
        if session is not None:
            session.tell("moved", a, params.get("to"))
        return own(a, **params)

    return forward


def _captured(own: Callable[..., Any]) -> Callable[..., Any]:
    def first(self: Compiled, why: str, *args: Any, **kwargs: Any) -> Any:
        to = active()
        if to is not None:
            to.tell("captured", self, why)
        return own(self, why, *args, **kwargs)

    return first


def _compiled(own: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Compiled, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        to = active()
        out = own(self, *args, **kwargs)
        if to is not None:
            to.tell("called", self, out)
        return out

    return __call__


__all__ = ["LOSSES", "STAND_INS"]
