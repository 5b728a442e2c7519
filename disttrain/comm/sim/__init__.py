"""A simulated cluster: ``cluster`` runs N ranks as threads of one process, one at a time;
``scheduler`` says who goes on, and keeps the virtual clock."""

from .cluster import SIM_ARENA_BYTES, Simulation, die, run_tasks, simulate
from .scheduler import Killed, Scheduler, SimWaiter
