"""``torch.ao.quantization`` under the stand-in: a program that runs unchanged."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import io
import torch, torch.nn as nn
import torch.nn.intrinsic as nni
import torch.ao.nn.quantized as nnq
import torch.ao.nn.quantized.dynamic as nnqd
from torch.ao.quantization import (
    DeQuantStub, FakeQuantize, MinMaxObserver, QConfig, QuantStub, convert, default_qconfig,
    fuse_modules, get_default_qat_qconfig, get_default_qconfig, prepare, prepare_qat,
    quantize_dynamic,
)
from torch.ao.quantization.observer import HistogramObserver
from torch.quantization import QuantWrapper

x = torch.randn(16, 8)
q = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
assert q.dtype is torch.quint8 and q.qscheme() == torch.per_tensor_affine
assert torch.dequantize(q).equal(q.dequantize()) and "dtype=torch.quint8" in repr(q)
assert torch.q_scale(q) == 0.1 and torch.int_repr(q).dtype == torch.uint8
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
d = quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
assert isinstance(d[0], nnqd.Linear) and (d(x) - model(x)).abs().max() < 0.05
one = QuantWrapper(model)
one.qconfig = get_default_qconfig("fbgemm")
fused = fuse_modules(one, [["module.0", "module.1"]])
assert isinstance(fused.module[0], nni.LinearReLU)
prepared = prepare(fused)
prepared(x)
done = convert(prepared)
assert isinstance(done.module[0], nnq.Linear) and (done(x) - model(x)).abs().max() < 0.1
file = io.BytesIO()
torch.save(done.state_dict(), file)
file.seek(0)
done.load_state_dict(torch.load(file))
one = QuantWrapper(model.train())
one.qconfig = get_default_qat_qconfig("x86")
trained = prepare_qat(one.train())
trained(x).sum().backward()
assert isinstance(trained.module[0], torch.nn.qat.Linear)
from torchao.quantization import Int8WeightOnlyConfig, quantize_
quantize_(model, Int8WeightOnlyConfig())
assert type(model[0]).__name__ == "WeightOnlyLinear"
torch.backends.quantized.engine = "qnnpack"
assert issubclass(FakeQuantize, nn.Module) and "x86" in torch.backends.quantized.supported_engines
"""


def test_a_program_runs_unchanged(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    run = [sys.executable, "-W", "error", "-m", "disttrain.compat.torch", str(file)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
