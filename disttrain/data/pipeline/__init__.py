"""Pipelines: datasets as chains of stages over a stream of elements.

A ``Pipeline`` is a plan: each method adds a stage. ``stage`` says what a stage is, ``elements``
what goes through; ``sources``, ``elementwise``, ``batching``, ``combining``, ``shuffling``,
``caching`` and ``threads`` are the stages by kind; ``iteration`` is what a program iterates over.
"""

from .chain import AUTOTUNE, Options
from .iteration import PipelineIterator
from .pipeline import Pipeline
from .specs import INFINITE, UNKNOWN, PipelineSpec, TensorSpec

INFINITE_CARDINALITY, UNKNOWN_CARDINALITY = INFINITE, UNKNOWN

__all__ = [
    "AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "Options", "Pipeline",
    "PipelineIterator", "PipelineSpec", "TensorSpec",
]  # fmt: skip
