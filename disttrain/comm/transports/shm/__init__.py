"""The shared-memory transport: ranks of one host that map one segment.

Read ``transport`` first. Below it: ``steps`` (the collectives), ``mailbox`` (send and recv),
``channel`` (a group's flags and headers), ``shared`` (memory that all ranks see), ``hub`` (what a
rank's groups share), ``deadlock``, ``bootstrap`` (how ranks find one segment), ``arena``.
"""

from .transport import ShmTransport, connect, connect_by_store
