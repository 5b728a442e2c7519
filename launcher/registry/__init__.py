"""Where the nodes of a job find each other: a small map with leases, one for each job.

``base`` says what every registry can do. ``embedded`` is the default: a store of the job's own, in
the first node's keeper. Who is a member, and what follows of it, is ``membership``'s to say.
"""

from .base import LeaseEnded, Registry, RegistryLost, Snapshot

__all__ = ["LeaseEnded", "Registry", "RegistryLost", "Snapshot"]
