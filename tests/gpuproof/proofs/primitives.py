"""The table of primitives, every rule and every type: the device computes what the CPU does.

The rules and their comparison are those of the tests (``support/cases/device_table.py``)."""

from __future__ import annotations

import functools
import importlib

from disttrain.core.types import dtypes
from disttrain.ops.declare import REGISTRY

from ..journal import Job
from .places import ruled, start

MOVES = "to_copy"  # is the copy between host and device itself: see face.py
TYPES = ("float32", "bfloat16", "float64", "float16")
RULES = ("vjp", "jvp", "second", "batch")


def prove(job: Job) -> None:
    """Forwards in all types; rules in float32 on a device, where the rehearsal takes some."""
    rules = importlib.import_module("support.cases.device_table").Rules
    names = [n for n in importlib.import_module("support.cases.table").NAMES if n != MOVES]
    platform = ruled(job, start(job))
    for name in names:
        for kind in TYPES if job.real else TYPES[:1]:
            check = rules(platform, getattr(dtypes, kind).np).check
            job.case(f"{name} {kind}", lambda c=check, n=name: c("forward", n))
    smooth = [n for n in names if REGISTRY[n].differentiable]
    check = rules(platform, dtypes.float64.np).check
    for rule in RULES if job.real else RULES[:1]:
        for name in smooth:
            most = None if job.real else 1
            job.case(f"{name} {rule}", functools.partial(check, rule, name, most))
