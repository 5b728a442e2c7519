"""A program that is exported with sizes that change, read, saved, loaded and run."""

import io
import os
import tempfile

import torch
from torch import nn
from torch.export import Dim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x, bias=None):
        y = self.layers(x) * self.scale
        return {"scores": y, "best": y.argmax(-1)}


torch.manual_seed(0)
net = Net().eval()
batch = Dim("batch", min=2, max=64)
program = torch.export.export(net, (torch.rand(4, 8),), dynamic_shapes={"x": {0: batch}})
print(type(program).__name__, sorted(program.state_dict))
x = torch.rand(9, 8)
print(torch.equal(program.module()(x)["scores"], net(x)["scores"]))
print([n.op for n in program.graph.nodes].count("placeholder") >= 1, program.graph.nodes is not None)
path = os.path.join(tempfile.mkdtemp(), "net.pt2")
torch.export.save(program, path)
again = torch.export.load(path)
found = again.module()(x)
print(sorted(found), torch.equal(found["best"], net(x)["best"]))
buffer = io.BytesIO()
torch.export.save(program, buffer)
buffer.seek(0)
print(torch.equal(torch.export.load(buffer).module()(x)["scores"], net(x)["scores"]))
try:
    program.module()(torch.rand(65, 8))
except Exception as error:
    print("refused", len(str(error)) > 0)
