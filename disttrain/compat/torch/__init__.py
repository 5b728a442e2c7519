"""disttrain under the name ``torch``, so that unmodified PyTorch scripts run.

    python -m disttrain.compat.torch train.py
    dtrun --as-torch --nproc-per-node 4 train.py

or, first thing in a program, ``disttrain.compat.torch.install()``. Refused when the real torch has
been imported already. What is missing says so by name (see ``shim``).
"""

from __future__ import annotations

import sys
from typing import Any

import disttrain as dt

from ...core import dtypes
from ...core.checkpoint import checkpoint, checkpoint_sequential
from ...core.tensor import Size, Tensor
from ...errors import ConfigError
from ...ops import linalg, math, products, reductions
from . import facade, legacy, spawn, testing
from .shim import ROOT, Shim, publish

VERSION = "2.13.0+disttrain"


def install() -> None:
    """Publish the stand-in. Calling it again changes nothing."""
    present = sys.modules.get(ROOT)
    if isinstance(present, Shim):
        return
    if present is not None:
        raise ConfigError(
            f"compat.torch.install: the real {ROOT} is imported already (from "
            f"{getattr(present, '__file__', '?')}); call install() before anything imports it, or "
            "start the program with python -m disttrain.compat.torch"
        )
    dtypes.dtype.namespace = Size.namespace = ROOT
    publish(build())


def build() -> dict[str, Shim]:
    """All modules of the stand-in, parents before children."""
    modules = {ROOT: _top()}
    for group in (_nn(), _optim(), _utils(), _autograd(), _distributed(), _others()):
        modules.update(group)
    return modules


def _top() -> Shim:
    top = Shim(ROOT).take(dt)
    top.give(**legacy.classes()).give(**facade.settings())
    top.give(
        __version__=VERSION, pi=3.141592653589793, inf=float("inf"), nan=float("nan"), e=2.718281828459045,
        newaxis=None, Tensor=Tensor, norm=products.norm, compile=dt.compile, is_grad_enabled=dt.is_grad_enabled,
        strided="strided",
    )  # fmt: skip
    return top


def _nn() -> dict[str, Shim]:
    out = {
        "torch.nn": Shim("torch.nn").take(dt.nn),
        "torch.nn.functional": Shim("torch.nn.functional").take(dt.nn.functional),
        "torch.nn.init": Shim("torch.nn.init").take(dt.nn.init),
        "torch.nn.utils": Shim("torch.nn.utils").take(dt.nn.utils),
        "torch.nn.parameter": Shim("torch.nn.parameter").give(Parameter=dt.nn.Parameter),
        "torch.nn.modules": Shim("torch.nn.modules").take(dt.nn),
        "torch.nn.modules.module": Shim("torch.nn.modules.module").give(Module=dt.nn.Module),
        "torch.nn.parallel": Shim("torch.nn.parallel").give(
            DistributedDataParallel=dt.distributed.DistributedDataParallel
        ),
        "torch.nn.parallel.distributed": Shim("torch.nn.parallel.distributed").give(
            DistributedDataParallel=dt.distributed.DistributedDataParallel
        ),
    }
    return out


def _optim() -> dict[str, Shim]:
    return {
        "torch.optim": Shim("torch.optim").take(dt.optim),
        "torch.optim.lr_scheduler": Shim("torch.optim.lr_scheduler").take(dt.optim.lr_scheduler),
        "torch.optim.optimizer": Shim("torch.optim.optimizer").give(Optimizer=dt.optim.Optimizer),
    }


def _utils() -> dict[str, Shim]:
    samplers = ["Sampler", "RandomSampler", "SequentialSampler", "BatchSampler"]
    return {
        "torch.utils": Shim("torch.utils"),
        "torch.utils.data": Shim("torch.utils.data").take(dt.data),
        "torch.utils.data.dataset": Shim("torch.utils.data.dataset").take(dt.data),
        "torch.utils.data.dataloader": Shim("torch.utils.data.dataloader").take(dt.data),
        "torch.utils.data.sampler": Shim("torch.utils.data.sampler").take(dt.data, samplers),
        "torch.utils.data.distributed": Shim("torch.utils.data.distributed").give(
            DistributedSampler=dt.data.DistributedSampler
        ),
        "torch.utils.checkpoint": Shim("torch.utils.checkpoint").give(
            checkpoint=checkpoint, checkpoint_sequential=checkpoint_sequential
        ),
    }


def _autograd() -> dict[str, Shim]:
    return {
        "torch.autograd": Shim("torch.autograd").take(dt.autograd),
        "torch.autograd.function": Shim("torch.autograd.function").take(dt.autograd),
        "torch.autograd.functional": Shim("torch.autograd.functional").give(
            jacobian=_jacobian, hessian=lambda fn, x: dt.func.hessian(fn)(x)
        ),
        "torch.func": Shim("torch.func").take(dt.func),
    }


def _jacobian(fn: Any, inputs: Any, **options: Any) -> Any:
    if isinstance(inputs, tuple):
        return dt.func.jacrev(fn, argnums=tuple(range(len(inputs))))(*inputs)
    return dt.func.jacrev(fn)(inputs)


def _distributed() -> dict[str, Shim]:
    top = Shim("torch.distributed").take(dt.distributed)
    return {
        "torch.distributed": top,
        "torch.distributed.elastic": Shim("torch.distributed.elastic"),
        "torch.distributed.elastic.multiprocessing": Shim(
            "torch.distributed.elastic.multiprocessing"
        ),
        "torch.distributed.elastic.multiprocessing.errors": Shim(
            "torch.distributed.elastic.multiprocessing.errors"
        ).give(record=lambda fn: fn),
        "torch.multiprocessing": spawn.module(),
    }


def _others() -> dict[str, Shim]:
    cuda = facade.cuda()
    out = {
        "torch.cuda": cuda,
        "torch.accelerator": facade.accelerator(),
        **facade.backends(),
        "torch.random": Shim("torch.random").take(
            dt, ["manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "fork_rng"]
        ),
        "torch.linalg": Shim("torch.linalg").give(
            norm=products.norm, vector_norm=products.vector_norm, inv=linalg.inv, det=linalg.det,
            matmul=products.matmul,
        ),
        "torch.special": Shim("torch.special").give(
            expit=math.sigmoid, logsumexp=reductions.logsumexp, erf=math.erf, xlogy=math.xlogy
        ),
        "torch.testing": Shim("torch.testing").give(assert_close=testing.assert_close),
        "torch.version": Shim("torch.version").give(__version__=VERSION, cuda=None, hip=None, git_version=""),
        "torch.types": Shim("torch.types").give(Device=Any, Number=Any),
    }  # fmt: skip
    return out


__all__ = ["build", "install"]
