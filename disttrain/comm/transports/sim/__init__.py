"""A simulated cluster: ``cluster`` runs N ranks as threads of one process, one at a time;
``scheduler`` says who goes on, and keeps the virtual clock; ``transport`` carries their arrays over
a ``fabric`` with a ``network`` and ``faults``, and ``timeline`` tells who did what when.
``explore`` tries schedules and faults, ``choosing`` every order of messages (``interleavings``)."""

from .choosing import prove
from .cluster import (
    SIM_ARENA_BYTES,
    Simulation,
    die,
    first_failed,
    run_cluster,
    run_tasks,
    simulate,
)
from .fabric import Cluster, Fabric, fabric
from .scheduler import Killed, Scheduler, SimWaiter
from .transport import connect
