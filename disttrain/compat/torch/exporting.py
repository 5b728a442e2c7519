"""``torch.export`` and ``torch.fx``: names over ``disttrain.export``, which is loaded when one of
them is asked for."""

from __future__ import annotations

import importlib

from ..publish import Shim
from .inner import absents

_EXPORT = (
    "Dim", "ExportedProgram", "ShapesCollection", "dims", "export", "load", "save", "unflatten",
)  # fmt: skip
_SIGNATURE = ("InputKind", "InputSpec", "OutputKind", "OutputSpec")


_ABSENT = "Interpreter Proxy Tracer Transformer"


def _same(name: object) -> object:
    return name


def _fill_export(shim: Shim) -> None:
    found = importlib.import_module("disttrain.export.exported")
    shim.take(found, _EXPORT).give(ExportGraphSignature=found.GraphSignature)


def _fill_signature(shim: Shim) -> None:
    found = importlib.import_module("disttrain.export.exported")
    shim.take(found, _SIGNATURE).give(ExportGraphSignature=found.GraphSignature)


def _fill_fx(shim: Shim) -> None:
    found = importlib.import_module("disttrain.export.exported")
    reading = importlib.import_module("disttrain.export.reading")
    shim.give(symbolic_trace=found.symbolic_trace, GraphModule=reading.GraphModule,
              Graph=reading.FxGraph, Node=reading.FxNode)  # fmt: skip


def modules() -> dict[str, Shim]:
    """``torch.export``, ``torch.fx``, and modules of them that programs import."""
    return {
        "torch.export": Shim("torch.export").later(_fill_export),
        "torch.export.graph_signature": Shim("torch.export.graph_signature").later(_fill_signature),
        "torch.export.exported_program": Shim("torch.export.exported_program").later(_fill_export),
        "torch.export.dynamic_shapes": Shim("torch.export.dynamic_shapes").later(_fill_export),
        "torch.fx": Shim("torch.fx")
        .give(wrap=_same, **absents("torch.fx", _ABSENT))
        .later(_fill_fx),
        "torch.fx.graph_module": Shim("torch.fx.graph_module").later(_fill_fx),
        "torch.fx.graph": Shim("torch.fx.graph").later(_fill_fx),
        "torch.fx.node": Shim("torch.fx.node").later(_fill_fx),
    }


__all__ = ["modules"]
