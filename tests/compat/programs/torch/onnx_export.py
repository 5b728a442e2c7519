"""A network that leaves as ONNX, is checked, and is run by onnxruntime."""

import os
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn


class SuperResolution(nn.Module):
    """Sub-pixel convolution (Shi et al. 2016)."""

    def __init__(self, factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 8, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(8, factor**2, (3, 3), (1, 1), (1, 1))
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.shuffle(self.conv3(x))


torch.manual_seed(0)
model = SuperResolution(3)
model.eval()
x = torch.randn(2, 1, 12, 12, requires_grad=True)
expected = model(x)
path = os.path.join(tempfile.mkdtemp(), "super_resolution.onnx")
torch.onnx.export(
    model,
    x,
    path,
    export_params=True,
    opset_version=17,
    do_constant_folding=True,
    input_names=["input"],
    output_names=["output"],
    dynamic_axes={"input": {0: "batch_size"}, "output": {0: "batch_size"}},
    dynamo=False,
)
read = onnx.load(path)
onnx.checker.check_model(read)
print([i.name for i in read.graph.input], [o.name for o in read.graph.output])
print("opset", [o.version for o in read.opset_import if o.domain == ""])
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
print([(i.name, i.shape, i.type) for i in session.get_inputs()])


def to_numpy(tensor):
    return tensor.detach().cpu().numpy() if tensor.requires_grad else tensor.cpu().numpy()


found = session.run(None, {session.get_inputs()[0].name: to_numpy(x)})
np.testing.assert_allclose(to_numpy(expected), found[0], rtol=1e-03, atol=1e-05)
print("equal", found[0].shape)
many = torch.randn(5, 1, 12, 12)
found = session.run(["output"], {"input": to_numpy(many)})[0]
np.testing.assert_allclose(to_numpy(model(many)), found, rtol=1e-03, atol=1e-05)
print("another batch", found.shape)
