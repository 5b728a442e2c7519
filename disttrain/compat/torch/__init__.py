"""disttrain under the name ``torch``, so that unmodified PyTorch scripts run.

    python -m disttrain.compat.torch train.py
    dtrun --as-torch --nproc-per-node 4 train.py

or, first thing in a program, ``disttrain.compat.torch.install()``. Refused when the real torch has
been imported already. What is missing says so by name (see ``compat/publish.py``).

``top`` has what is at torch's top level, ``nn`` layers and training, ``distributed`` strategies and
processes, ``elastic`` the launcher's parts, ``remote`` remote calls; a module each the rest.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import sys
from typing import Any

import disttrain as dt

from ...comm.transports import fake
from ...core.tensor import Size
from ...core.types import dtypes
from ...core.types.layout import (
    layout,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from ...core.types.memory_format import memory_format
from ...errors import ConfigError, DeviceError, OutOfMemoryError
from ...ops.functions.sort import ValuesIndices
from ...ops.methods import LATER
from ..publish import Shim, publish, refuse_real
from . import (
    amp,
    checkpoints,
    compiling,
    distributions,
    elastic,
    exporting,
    facade,
    flexible,
    gradients,
    hub,
    inner,
    library,
    onnx,
    pytree,
    quantization,
    remote,
    saving,
    scripted,
    sparse,
    testing,
    transforms,
    watching,
)
from .distributed import reducers, sharding, spawn, strategies
from .nn import training
from .top import foreach, functional, legacy, operations, pipes
from .top import names as top

ROOT = "torch"
VERSION = "2.13.0+disttrain"
_FAKES = "torch.testing._internal.distributed"
_HERE = os.path.dirname(os.path.abspath(__file__))
_ENTRY = os.path.join(_HERE, "entry")  # where processes that are started afresh find the stand-in
_RUN = os.path.join(_HERE, "run.py")
_RUNNABLE = {"torch.distributed.run": _RUN, "torch.distributed.launch": _RUN}


def install() -> None:
    """Publish the stand-in. Calling it again changes nothing."""
    if refuse_real(ROOT, "compat.torch"):
        return
    dtypes.dtype.namespace = memory_format.namespace = Size.namespace = layout.namespace = ROOT
    top.attach()
    publish(build(), _RUNNABLE, VERSION)
    sys.path.insert(1, _ENTRY)


def build() -> dict[str, Shim]:
    """All modules of the stand-in, parents before children."""
    modules = {ROOT: _top()}
    for group in (
        training.nn_modules(),
        training.optim_modules(),
        _utils(),
        gradients.autograd_modules(),
        _distributed(),
        _devices(),
        _others(),
    ):
        modules.update(group)
    return modules


def _quasirandom(shim: Shim) -> None:
    shim.take(importlib.import_module("disttrain.quasirandom"))


def _module(name: str, source: object, *names: str) -> dict[str, Shim]:
    """One module with all of ``source``, or only ``names``."""
    return {name: Shim(name).take(source, names or None)}


def _top() -> Shim:
    return (
        Shim(ROOT)
        .later(_later)
        .take(dt)
        .give(**legacy.classes())
        .give(**facade.settings())
        .give(**foreach.names())
        .give(
            __version__=VERSION, pi=math.pi, inf=math.inf, nan=math.nan, e=math.e, newaxis=None,
            strided=strided, sparse_coo=sparse_coo, sparse_csr=sparse_csr, sparse_csc=sparse_csc,
            sparse_bsr=sparse_bsr, sparse_bsc=sparse_bsc,
            has_lapack=True, has_spectral=True,
            compile=compiling.compile, load=saving.load, save=saving.save, vmap=dt.func.vmap,
            cond=dt.func.cond, **compiling.checks(),
            cfloat=dtypes.complex64, **amp.settings(),
            cdouble=dtypes.complex128, typename=_typename, is_storage=saving.is_storage,
            AcceleratorError=DeviceError, OutOfMemoryError=OutOfMemoryError,
            GradScaler=dt.amp.GradScaler, **operations.names(), **functional.names(), **top.names(),
            Stream=facade.Stream, Event=facade.Event, PyTorchFileReader=inner.FILE_READER,
            ScriptModule=scripted.ScriptModule, ScriptFunction=scripted.ScriptFunction,
        )
    )  # fmt: skip


def _later(shim: Shim) -> None:
    """What is loaded when the top level is first asked for a name that it has not."""
    Shim.take(shim, dt, LATER)
    quantization.top(shim)


def _typename(obj: object) -> str:
    kind = type(obj)
    return obj.type() if isinstance(obj, dt.Tensor) else f"{kind.__module__}.{kind.__qualname__}"


def _utils() -> dict[str, Shim]:
    data = dt.data
    return {
        "torch.utils": Shim("torch.utils"),
        "torch.utils.deterministic": facade.deterministic(),
        "torch.utils.data": Shim("torch.utils.data").take(data).give(**pipes.names()),
        "torch.utils.data.dataset": Shim("torch.utils.data.dataset").take(data),
        "torch.utils.data._utils": Shim("torch.utils.data._utils"),
        **_module("torch.utils.data._utils.collate", data, "default_collate", "default_convert"),
        "torch.utils.data.sampler": Shim("torch.utils.data.sampler").take(data),
        **_module("torch.utils.data.distributed", data, "DistributedSampler"),
        **_module("torch.utils.dlpack", dt, "from_dlpack", "to_dlpack"),
        "torch.utils.tensorboard": watching.tensorboard(),
        "torch.utils.tensorboard.writer": watching.tensorboard(),
        "torch.utils._pytree": pytree.module(),
        **checkpoints.modules(),
    }


# What is not public by its kind (see ``shim.public``): errors, values, names of other modules' own.
_OF_DISTRIBUTED = (
    "DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "QueueEmptyError",
    "GroupName", "default_pg_timeout", "reduce_op", "_Work", "_coalescing_manager",
    "_CoalescingManager", "_all_gather_base", "_reduce_scatter_base", "_get_process_group_store",
    "_make_nccl_premul_sum",
)  # fmt: skip


def _distributed() -> dict[str, Shim]:
    whole = "torch.distributed"
    return {
        "torch.distributed": Shim("torch.distributed")
        .take(dt.distributed)
        .take(dt.distributed, ("DeviceMesh", "GradBucket", "breakpoint", "init_device_mesh"))
        .take(dt.distributed, ("record_comm",))
        .take(dt.distributed, _OF_DISTRIBUTED)
        .give(**reducers.C10D_NAMES),
        f"{whole}.distributed_c10d": sharding.Same(
            f"{whole}.distributed_c10d",
            "disttrain.distributed",
            "disttrain.distributed.distributed_c10d",
        ),
        **_module("torch.distributed.constants", dt.distributed, "default_pg_timeout"),
        **elastic.modules(),
        "torch.multiprocessing": spawn.module(),
        **sharding.fsdp_modules(),
        **sharding.mesh_modules(),
        **sharding.checkpoint_modules(),
        **strategies.modules(),
        **remote.modules(),
    }


def _devices() -> dict[str, Shim]:
    return {
        "torch.cpu": facade.cpu(),
        **facade.cuda(),
        **facade.absent(),
        "torch.accelerator": facade.accelerator(),
        **facade.backends(),
        **amp.modules(),
    }


def _recurrent() -> dict[str, Any]:
    found = functional.names()
    return {name: found[name] for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}


# One class of results for all that give values and where they are.
_RETURN_TYPES = dict.fromkeys(
    "cummax cummin kthvalue max median min mode nanmedian sort topk".split(), ValuesIndices
)


def _others() -> dict[str, Shim]:
    seeds = "manual_seed seed initial_seed get_rng_state set_rng_state fork_rng default_generator"
    return {
        "torch.random": Shim("torch.random")
        .take(dt, seeds.split())
        .give(thread_safe_generator=lambda: None),
        **_module("torch.futures", dt.futures),
        **saving.modules(),
        "torch.linalg": Shim("torch.linalg")
        .take(dt.linalg)
        .give(LinAlgError=dt.linalg.LinAlgError),
        "torch.fft": Shim("torch.fft").take(dt.fft),
        "torch.special": Shim("torch.special").take(dt.special, dt.special.__all__),
        "torch.signal": Shim("torch.signal"),
        **_module("torch.signal.windows", dt.signal.windows),
        "torch._VF": Shim("torch._VF").give(**_recurrent()),
        "torch.return_types": Shim("torch.return_types").give(**_RETURN_TYPES),
        **compiling.modules(),
        **transforms.modules(),
        **distributions.modules(),
        **hub.modules(),
        **inner.modules(),
        **quantization.modules(),
        "torch.library": library.module(),
        "torch.nn.attention.flex_attention": flexible.module(),
        "torch.jit": scripted.jit(),
        **exporting.modules(),
        **onnx.modules(),
        "torch.jit.annotations": Shim("torch.jit.annotations").give(List=list, Dict=dict),
        "torch.sparse": sparse.module(),
        "torch.quasirandom": Shim("torch.quasirandom").later(_quasirandom),
        **_module("torch.testing", testing, "assert_close", "make_tensor"),
        **{inside: Shim(inside) for inside in ("torch.testing._internal", _FAKES)},
        **_module(f"{_FAKES}.fake_pg", fake, "FakeStore"),
        "torch.version": Shim("torch.version").give(
            __version__=VERSION, cuda=None, hip=None, git_version="", debug=False
        ),
        "torch.types": Shim("torch.types").give(Device=Any, Number=float),
    }  # fmt: skip


__all__ = ["build", "install"]
