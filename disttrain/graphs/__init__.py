"""Graphs: functions traced once for each kind of arguments into lists of operations, which run
again on the values of a call; control flow of values without numbers as operations of its own.

Tracing sees examples, so what computes needs no rules of shapes. Running calls the same functions,
so tapes, transforms and the compiler around a call see what they would see without a graph.
"""

from .composites import Composite
from .function import Function, Spec, Trace
from .graph import CURRENT, Graph, Operation, Run, Symbol, effect, outside, within

__all__ = ["CURRENT", "Composite", "Function", "Graph", "Operation", "Run", "Spec", "Symbol",
           "Trace", "effect", "outside", "within"]  # fmt: skip
