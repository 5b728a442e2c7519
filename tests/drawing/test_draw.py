"""Models and losses as drawings: what is in them, and that the files are what they say."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

import disttrain as dt
from disttrain.drawing import traced


class Net(dt.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = dt.nn.Sequential(dt.nn.Linear(3, 4), dt.nn.BatchNorm1d(4), dt.nn.ReLU())
        self.head = dt.nn.Linear(4, 2)

    def forward(self, x, scale=None):
        y = self.head(self.body(x))
        return y if scale is None else {"y": y * scale, "twice": y + y}


def test_a_model_is_drawn_by_module():
    drawing = dt.draw(Net(), dt.rand(5, 3))
    lines = drawing.text().splitlines()
    assert lines[0] == "input_0: input() float32[5, 3]"
    assert any(x.startswith("Net/body/0/linear: linear(input_0, Net/body/0/weight") for x in lines)
    assert lines[-1] == "output_0: output(Net/head/linear) float32[5, 2]"
    assert "Net" in repr(drawing) and str(drawing) == drawing.text()


def test_a_model_is_as_it_was():
    net = Net()
    net.body.append(dt.nn.Dropout(0.5))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = dt.get_rng_state()
    dt.draw(net, dt.rand(5, 3))
    dt.set_rng_state(state)
    after = net.state_dict()
    assert all(dt.equal(after[k], v) for k, v in before.items())
    x = dt.rand(5, 3).requires_grad_()
    assert net(x).requires_grad


def test_keywords_several_results_and_functions():
    graph = traced(Net(), dt.rand(5, 3), scale=dt.tensor(2.0))
    assert [n.name for n in graph.nodes if n.kind == "input"] == ["input_0", "input_1"]
    assert [n.name for n in graph.nodes if n.kind == "output"] == ["output_0", "output_1"]

    def double(x):
        y = x.detach().view(-1)
        y.mul_(2)
        return y + 1

    nodes = traced(double, dt.rand(2, 2)).nodes
    assert nodes[-2].kind == "add" and nodes[nodes[-2].sources[0]].kind == "mul"


def test_a_loss_is_drawn_to_its_leaves():
    net, x = Net(), dt.rand(5, 3)
    loss = net(x).square().mean()
    named = dt.draw(loss, model=net).text()
    assert "head.weight: parameter() float32[2, 4]" in named and "Mean: Mean(Square)" in named
    assert "leaf" in dt.draw(loss).text()
    both = dt.draw([loss, net(x).sum()]).text()
    assert "output_1" in both
    loss.backward()


@pytest.mark.parametrize(
    "wrong", [lambda: dt.draw(dt.ones(2)), lambda: dt.draw(3), lambda: dt.draw(dt.ones(2), 1),
              lambda: dt.draw(Net(), dt.rand(5, 3)).save("x.png")],
)  # fmt: skip
def test_what_cannot_be_drawn(wrong):
    with pytest.raises(RuntimeError, match="draw"):
        wrong()


def test_the_picture_has_a_box_for_each_node(tmp_path):
    drawing = dt.draw(Net(), dt.rand(5, 3))
    path = drawing.save(tmp_path / "net.svg")
    root = ET.fromstring(path.read_text())
    space = "{http://www.w3.org/2000/svg}"
    boxes = root.findall(f"{space}g")
    assert len(boxes) == len(drawing.graph.nodes) and drawing._repr_svg_() == path.read_text()
    edges = sum(len(n.sources) for n in drawing.graph.nodes)
    assert len(root.findall(f"{space}path")) == edges
    wide, high = float(root.get("width")), float(root.get("height"))
    for box in (g.find(f"{space}rect") for g in boxes):
        assert 0 <= float(box.get("x")) <= wide - float(box.get("width"))
        assert 0 <= float(box.get("y")) <= high - float(box.get("height"))


def test_graphviz_gets_boxes_in_boxes(tmp_path):
    drawing = dt.draw(Net(), dt.rand(5, 3))
    text = drawing.save(tmp_path / "net.dot").read_text()
    assert text.startswith("digraph drawn {") and 'subgraph "cluster/Net/body/0" {' in text
    assert text.count("{") == text.count("}") and " -> " in text
    assert drawing.save(tmp_path / "net.txt").read_text() == drawing.text()
