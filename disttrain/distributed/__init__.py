"""Process groups on Tensors and data-parallel training, under PyTorch's names.

What belongs to one way of training is a package of its own, loaded when it is first asked for.

From above; packages on one row do not know each other:

_composable | algorithms | checkpoint |
    planning | replicas                           needs a strategy: hooks, state dicts, plans
ddp | fsdp | nn | optim | pipelining              the strategies; none knows another
spmd                                              one function over the blocks of all devices
equality                                          values that must be equal on all ranks
elastic                                           replicas in memory that outlive ranks
tensor | invariant | join                         DTensor; the same bits anywhere; uneven inputs
device_mesh | _functional_collectives |
    distributed_c10d                              names that programs import
mesh                                              grids of ranks
recovery | debugging                              shrink; what groups do, recorded
collectives                                       verbs on Tensors; several at once; plain data
groups                                            init, new_group; the groups of this rank
remote_device | rpc | autograd                    "worker/device"; PyTorch's paths to ``rpc``
"""

import importlib
from datetime import timedelta
from typing import Any

from ..comm.calls.reduce_ops import ReduceOp
from ..comm.calls.reduce_ops import premul_sum as _make_nccl_premul_sum
from ..comm.calls.work import Work
from ..comm.store import FileStore, HashStore, PrefixStore, Store, TCPStore
from ..comm.store.rendezvous import register_rendezvous_handler, rendezvous
from ..errors import (
    CollectiveMismatch,
    CommError,
    Deadlock,
    GroupRevoked,
    NetworkError,
    PeerFailed,
    QueueEmptyError,
    StoreError,
    ValuesDiffer,
    WaitTimeout,
)
from .collectives.coalesced import CoalescingManager as _CoalescingManager
from .collectives.coalesced import coalescing_manager as _coalescing_manager
from .collectives.tensors import (
    P2POp,
    _all_gather_base,
    _reduce_scatter_base,
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_object,
    all_gather_single,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    irecv,
    isend,
    monitored_barrier,
    recv,
    recv_object_list,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
    scatter_object_list,
    send,
    send_object_list,
    supports_complex,
)
from .groups.backend import (
    Backend,
    BackendConfig,
    DebugLevel,
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from .groups.new_group import (
    get_backend,
    get_backend_config,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)
from .groups.process_group import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ProcessGroup,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from .groups.state import (
    GroupMember,
    destroy_process_group,
    get_pg_count,
    group,
    init_process_group,
    is_available,
    is_initialized,
)
from .groups.state import process_group_store as _get_process_group_store
from .recovery import SHRINK_ABORT, SHRINK_DEFAULT, shrink, shrink_group

__outward__ = ("communication between ranks (disttrain.distributed)", "")

default_pg_timeout = timedelta(minutes=30)  # PyTorch's name and value

# PyTorch's names for what goes wrong between ranks.
DistError = DistBackendError = CommError
DistNetworkError, DistStoreError = NetworkError, StoreError
_Work, reduce_op, GroupName = Work, ReduceOp, str

_PACKAGES = (
    "_composable",
    "_functional_collectives",
    "algorithms",
    "autograd",
    "checkpoint",
    "ddp",
    "distributed_c10d",
    "elastic",
    "equality",
    "fsdp",
    "invariant",
    "join",
    "mesh",
    "nn",
    "optim",
    "pipelining",
    "planning",
    "recovery",
    "rpc",
    "tensor",
)
_NAMES = {  # which of them have the names that are asked for here
    "DistributedDataParallel": ".ddp",
    "GradBucket": ".ddp",
    "Join": ".join",
    "JoinHook": ".join",
    "Joinable": ".join",
    "DeviceMesh": ".mesh",
    "init_device_mesh": ".mesh",
    "Simulation": "..comm.transports.sim",
    "simulate": "..comm.transports.sim",
    "breakpoint": ".debugging",
    "record_comm": ".debugging",
    "same": ".equality",
    "same_step": ".equality",
    "shrink": ".recovery",
    "shrink_group": ".recovery",
    "SHRINK_ABORT": ".recovery",
    "SHRINK_DEFAULT": ".recovery",
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name in _NAMES:
        found = getattr(importlib.import_module(_NAMES[name], __name__), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list:
    return sorted({*globals(), *_PACKAGES, *_NAMES})
