"""The key-value store through which ranks find each other: in memory, in a file, over TCP.

Knows keys and bytes; no ranks, no arrays. ``table`` holds the meaning of every request once;
``local``, ``server`` and ``tcp`` carry requests to it.
"""

from .base import PrefixStore, Store
from .local import FileStore, HashStore
from .server import StoreServer
from .table import Limits
from .tcp import TCPStore

__all__ = [
    "FileStore",
    "HashStore",
    "Limits",
    "PrefixStore",
    "Store",
    "StoreServer",
    "TCPStore",
]
