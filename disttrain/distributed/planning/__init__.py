"""What each strategy of data and tensor parallelism needs per rank, without running anything."""

from .plan import Need, Precision, Strategy, plan, strategies
from .profile import Profile, Unit, profile_step
from .subject import Subject, as_json, needs_of, table

__all__ = [
    "Need",
    "Precision",
    "Profile",
    "Strategy",
    "Subject",
    "Unit",
    "as_json",
    "needs_of",
    "plan",
    "profile_step",
    "strategies",
    "table",
]
