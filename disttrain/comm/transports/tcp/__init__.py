"""The transport between hosts: TCP between them, shared memory inside each.

Read ``transport`` first. Below it: ``steps`` (what an operation sends), ``exchange`` (large
reductions), ``arithmetic`` and ``plans`` (in which parts, pure), ``mirror`` (one segment on several
hosts), ``net`` and ``pipe`` (the links), ``frames`` (what goes over them), ``engine`` (how it all
begins).
"""

from .transport import TcpTransport
