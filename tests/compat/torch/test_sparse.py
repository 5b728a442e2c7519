"""``torch.sparse`` under the stand-in: old types, and graph networks that run unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
OLD_TYPES = """
import torch
i, v = torch.LongTensor([[0, 1, 1], [2, 0, 2]]), torch.FloatTensor([3, 4, 5])
x = torch.sparse.FloatTensor(i, v, torch.Size([2, 3]))
assert repr(x.layout) == "torch.sparse_coo" and x.type() == "torch.sparse.FloatTensor"
assert isinstance(x, torch.sparse.FloatTensor) and not isinstance(x, torch.sparse.LongTensor)
assert isinstance(x.layout, torch.layout) and x.layout == torch.sparse_coo
assert torch.ones(2).layout is torch.strided and "layout=torch.sparse_coo" in repr(x)
assert torch.sparse.DoubleTensor(2, 3).dtype is torch.float64
assert torch.sparse.LongTensor(i, v.long()).shape == (2, 3)
assert torch.sparse.FloatTensor(torch.Size([4, 4]))._nnz() == 0
assert torch.sparse.mm(x, torch.ones(3, 1)).tolist() == [[3.0], [9.0]]
assert torch.spmm(x.to_sparse_csr(), torch.ones(3, 1)).tolist() == [[3.0], [9.0]]
try:
    torch.sparse.FloatTensor(i, v.double())
except RuntimeError as error:
    assert "expected values" in str(error)
else:
    raise AssertionError
"""


def run(*args):
    return subprocess.run(
        [sys.executable, "-W", "ignore", *args], check=True, timeout=100, text=True,
        capture_output=True,
    ).stdout  # fmt: skip


def test_old_types(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(OLD_TYPES)
    run("-m", "disttrain.compat.torch", program)


def losses(text):
    return [float(x) for x in re.findall(r"loss\w*: ([\d.]+)", text)]


def test_a_graph_convolution_is_that_of_the_dense_matrix(tmp_path):
    text = (PROGRAMS / "gcn.py").read_text()
    dense = tmp_path / "dense.py"
    dense.write_text(text.replace("torch.spmm(adj,", "torch.mm(adj.to_dense(),"))
    few, all_of_it = (
        losses(run("-m", "disttrain.compat.torch", p)) for p in (PROGRAMS / "gcn.py", dense)
    )
    assert len(few) == 60 and few[-2] < 0.5 < few[0]
    assert few == pytest.approx(all_of_it, abs=1e-5)


def test_attention_learns():
    found = losses(run("-m", "disttrain.compat.torch", PROGRAMS / "gat.py"))
    assert len(found) == 30 and found[14] < found[0] and found[29] < found[15]
