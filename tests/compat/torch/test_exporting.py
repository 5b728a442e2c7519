"""``torch.export`` and ``torch.fx``: loaded when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import disttrain as dt
from disttrain.compat.torch import exporting

M = exporting.modules()

LATE = """
import sys
from disttrain.compat import torch
torch.install()
import torch, torch.export, torch.fx, torch.jit
assert not [m for m in sys.modules if m.startswith("disttrain.export")]
torch.jit.script(torch.nn.Linear(1, 1))
assert not [m for m in sys.modules if m.startswith("disttrain.export")]
from torch.export import Dim, export
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule
assert isinstance(export(torch.nn.Linear(1, 1), (torch.ones(1, 1),)).module(), GraphModule)
"""


def test_names():
    export, fx = M["torch.export"], M["torch.fx"]
    ep = export.export(dt.nn.Linear(3, 2), (dt.ones(1, 3),), dynamic_shapes=({0: export.Dim("b")},))
    assert isinstance(ep, export.ExportedProgram) and isinstance(ep.module(), fx.GraphModule)
    assert isinstance(ep.graph, fx.Graph) and isinstance(ep.graph.nodes[0], fx.Node)
    kinds = M["torch.export.graph_signature"].InputKind
    assert ep.graph_signature.input_specs[0].kind is kinds.PARAMETER
    assert fx.symbolic_trace(dt.relu, example_inputs=(dt.ones(2),))(-dt.ones(3)).sum() == 0
    assert not isinstance(1, fx.Proxy) and fx.wrap("len") == "len"
    with pytest.raises(NotImplementedError, match=r"torch\.fx\.Tracer is not part"):
        fx.Tracer()


def test_nothing_is_loaded_before():
    subprocess.run([sys.executable, "-c", LATE], check=True, timeout=120)
