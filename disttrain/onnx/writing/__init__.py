"""Programs as ONNX models.

    types -> sizes -> writer -> rules/* -> functions -> model -> conversion -> entry

A program (``disttrain.export``) is a list of declared primitives. ``rules`` says for each what
nodes of ONNX compute the same; ``functions`` finds whole functions of the operator set (an
activation, a normalization, a resize) in what a program spells out; ``conversion`` goes over the
program, ``model`` makes the file, and ``entry`` is what users call.
"""

from .entry import ONNXProgram, export

__all__ = ["ONNXProgram", "export"]
