"""Images in other sizes, and with borders."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.export import Graph, Name, Node, Size, Value
from disttrain.nn import functional as F
from disttrain.onnx.writing.conversion import Conversion, unmade
from disttrain.onnx.writing.model import pruned
from disttrain.onnx.writing.types import Ref
from disttrain.onnx.writing.writer import Writer
from support.onnx_runs import operators, written


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [None, True])
@pytest.mark.parametrize("size", [(6, 8), (5, 3), (4, 9)])
def test_images_in_another_size(mode, corners, size):
    if mode == "nearest" and corners:
        return
    x = dt.randn(2, 3, 3, 4)
    made = written(lambda x: F.interpolate(x, size, mode=mode, align_corners=corners), (x,))
    if mode != "nearest":
        assert operators(made) == ["Resize"]


def test_doubled_images_of_any_size():
    made = written(lambda x: F.interpolate(x, scale_factor=2), (dt.randn(1, 2, 5, 5),),
                   (dt.randn(3, 2, 3, 7),), dynamic=({0: "n", 2: "h", 3: "w"},))  # fmt: skip
    assert operators(made) == ["Resize"]


def test_filters_and_areas_are_products():
    x = dt.randn(1, 2, 6, 7)
    written(lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), (x,))
    written(lambda x: F.interpolate(x, (4, 3), mode="area"), (x,))
    written(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (x,))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_borders_are_one_operator(mode):
    for widths in ((1, 2, 0, 1), (2, 0, 1, 1), (1, 1, 0, 0)):
        made = written(lambda x, w=widths: F.pad(x, w, mode), (dt.randn(1, 2, 4, 5),))
        assert operators(made) == ["Pad"]


def test_places_that_are_no_border():
    at = dt.tensor([1, 0, 1, 2, 0])
    made = written(lambda x: x.index_select(1, at), (dt.randn(2, 3),))
    assert operators(made) == ["Gather"]


# --- sizes that may change ---------------------------------------------------------------------
def graph(given: list[tuple], of: str = "resizing") -> Graph:
    """The rows and columns of an image, resized by matrices made of sizes."""
    h, w, f32 = Size("h"), Size("w"), np.dtype(np.float32)
    shapes = {
        "x": (1, 1, h, w), "m": (h, Size("2*h")), "k": (w, Size("2*w")), "a": (1, 1, w, h),
        "b": (1, 1, w, Size("2*h")), "c": (1, 1, Size("2*h"), w),
        "y": (1, 1, Size("2*h"), Size("2*w")),
    }  # fmt: skip
    turned = {"dims": (0, 1, 3, 2)}
    nodes = [
        *(Node("weights", (), {"of": of, "given": g, "dtype": f32}, (name,))
          for g, name in zip(given, "mk")),
        Node("permute", (Name("x"),), turned, ("a",)),
        Node("local_product", (Name("a"), Name("m")), {}, ("b",)),
        Node("permute", (Name("b"),), turned, ("c",)),
        Node("local_product", (Name("c"), Name("k")), {}, ("y",)),
    ]  # fmt: skip
    values = {n: Value(n, shape, f32) for n, shape in shapes.items()}
    return Graph(("x",), tuple(nodes), (Name("y"),), values)


def converted(of: Graph) -> tuple:
    """(the writer, the nodes that the result needs)."""
    x = Ref("x", np.dtype(np.float32), of.values["x"].shape)
    w = Writer(23, sources={"h": (x, 2), "w": (x, 3)}, taken={"x"})
    made = Conversion(of, w, {"x": x})
    made.run()
    assert not made.problems
    return made, pruned(w.ops, [made.env["y"].name])


def test_matrices_made_of_sizes_are_a_resize():
    h, w = Size("h"), Size("w")
    given = [(True, "sampled", "bilinear", n, Size(f"2*{n}"), 2.0, False) for n in (h, w)]
    made, ops = converted(graph(given))
    assert [op.kind for op in ops] == ["Resize"]
    assert made.w.values[ops[0].inputs[2]].tolist() == [1, 1, 2, 2]
    given = [(False, "sampled", "bicubic", n, Size(f"2*{n}"), None, True) for n in (h, w)]
    made, ops = converted(graph(given))
    assert ops[-1].kind == "Resize" and not ops[-1].inputs[2] and ops[-1].inputs[3]
    assert ops[-1].attributes["coordinate_transformation_mode"] == "align_corners"


def test_other_matrices_made_of_sizes_are_told():
    given = [("bilinear", n, Size(f"2*{n}"), None, False) for n in (Size("h"), Size("w"))]
    made, ops = converted(graph(given, "smooth"))
    problems = unmade(made.w, [made.env["y"]], made.renamed)
    assert [p.primitive for p in problems] == ["MatMul", "MatMul"]
    assert "sizes that depend on the input" in str(problems[0])


IMAGES = {  # of any batch, height and width: what they become where that is one operator
    "mean of regions": (lambda x: F.adaptive_avg_pool2d(x, (3, None)), None),
    "the largest": (lambda x: F.adaptive_max_pool2d(x, 1), "ReduceMax"),
    "nearest": (lambda x: F.interpolate(x, size=(9, 7)), None),
    "nearest exactly": (lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"), None),
    "area": (lambda x: F.interpolate(x, size=(4, 5), mode="area"), None),
    "half": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), "Resize"),
    "reflect": (lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"), "Pad"),
    "replicate": (lambda x: F.pad(x, (1, 2, 3, 1), mode="replicate"), "Pad"),
    "circular": (lambda x: F.pad(x, (1, 2, 3, 1), mode="circular"), "Pad"),
    "windows": (lambda x: F.unfold(x, 3, 2, 1, 2), None),
    "strided": (lambda x: x.unfold(2, 4, 4).unfold(3, 2, 1), None),
    "diagonal": (lambda x: x.diagonal(-1, 2, 3), None),
    "identity": (lambda x: x @ x.transpose(2, 3) + dt.eye(x.shape[2]), None),
    "even numbers": (lambda x: x + dt.linspace(0, 1, x.shape[3]), None),
    "repeated": (lambda x: x.repeat_interleave(2, 2), None),
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("opset", [17, 23])
def test_images_of_any_height_and_width(name, opset):
    fn, one = IMAGES[name]
    given = [(dt.randn(b, 2, h, w),) for b, h, w in ((1, 6, 8), (2, 9, 9), (1, 5, 7))]
    made = written(fn, *given, dynamic=({0: "b", 2: "h", 3: "w"},), opset_version=opset)
    if one is not None and not (one == "Pad" and opset < 19 and name == "circular"):
        assert operators(made) == [one]
