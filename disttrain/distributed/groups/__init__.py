"""Which groups this rank is in: how they are made, named, kept and left.

``state`` has the default group, ``new_group`` the others; ``process_group`` is what programs hold;
``stores`` are where they meet, ``backend`` the names of transports, ``custom_backend`` a program's
own.
"""

import importlib
from typing import Any

from .backend import Carried, Plugin

_CUSTOM = "disttrain.distributed.groups.custom_backend"  # loaded by the first group that has one


def _connect(plugin: Plugin, meeting: object) -> Any:
    return importlib.import_module(_CUSTOM).connect(plugin, meeting)


Carried.connect = staticmethod(_connect)
