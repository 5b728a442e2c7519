"""What strategies of parallel training need, and how fast they are, without running them."""

from .asking import STACKS, Question, answer, read_model
from .clusters import Machines, read_cluster
from .constants import constants
from .plan import Need, Precision, Strategy, plan, strategies
from .playing import Player
from .profile import Profile, Unit, profile_step
from .ranking import Job, judge, rank
from .subject import Subject, as_json, needs_of, table
from .traced import transformer_of_program
from .transformer import Transformer, transformer_of

__all__ = [
    "STACKS",
    "Job",
    "Machines",
    "Need",
    "Player",
    "Precision",
    "Profile",
    "Question",
    "Strategy",
    "Subject",
    "Transformer",
    "Unit",
    "answer",
    "as_json",
    "constants",
    "judge",
    "needs_of",
    "plan",
    "profile_step",
    "rank",
    "read_cluster",
    "read_model",
    "strategies",
    "table",
    "transformer_of",
    "transformer_of_program",
]
