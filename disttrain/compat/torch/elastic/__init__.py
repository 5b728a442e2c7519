"""``torch.distributed.elastic``, ``torch.distributed.run`` and ``torch.distributed.launcher``:
PyTorch's names of the launcher's parts, for programs that start jobs themselves.

The launcher does the work; nothing here watches a process.
"""

from ...publish import Shim
from ..distributed.sharding import Same

_HERE = __name__
_RECORDS = "disttrain.distributed.elastic.records"
_WHOLE = "torch.distributed.elastic"

# module of PyTorch's -> modules of ours that have its names
_PLACES = {
    f"{_WHOLE}.multiprocessing.errors": ("errors", _RECORDS),
    f"{_WHOLE}.multiprocessing.errors.error_handler": ("errors",),
    f"{_WHOLE}.multiprocessing": ("processes", "errors"),
    f"{_WHOLE}.multiprocessing.api": ("processes", "errors"),
    f"{_WHOLE}.rendezvous": ("handlers", "builtin"),
    f"{_WHOLE}.rendezvous.api": ("handlers",),
    f"{_WHOLE}.rendezvous.registry": ("builtin",),
    f"{_WHOLE}.rendezvous.static_tcp_rendezvous": ("static",),
    f"{_WHOLE}.rendezvous.c10d_rendezvous_backend": ("c10d",),
    f"{_WHOLE}.utils": ("stores", "texts"),
    f"{_WHOLE}.utils.distributed": ("stores",),
    f"{_WHOLE}.utils.store": ("meeting",),
    f"{_WHOLE}.utils.logging": ("texts",),
    f"{_WHOLE}.events": ("events",),
    f"{_WHOLE}.agent.server.api": ("agents",),
    f"{_WHOLE}.agent.server.local_elastic_agent": ("agents",),
    f"{_WHOLE}.agent.server": ("agents",),
    "torch.distributed.launcher.api": ("launching",),
    "torch.distributed.launcher": ("launching",),
    "torch.distributed.run": ("running",),
    "torch.distributed.launch": ("launch",),
}


def modules() -> dict[str, Shim]:
    """All of them; each is loaded when the first of its names is asked for."""
    made: dict[str, Shim] = {
        name: Same(name, *(_path(file) for file in files)) for name, files in _PLACES.items()
    }
    return {_WHOLE: Shim(_WHOLE), f"{_WHOLE}.agent": Shim(f"{_WHOLE}.agent"), **made}


def _path(file: str) -> str:
    return file if "." in file else f"{_HERE}.{file}"
