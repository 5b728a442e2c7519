"""ONNX: models of other programs as modules, and ours as theirs.

    dt.onnx.export(model, (x,), "model.onnx", dynamic={"x": {0: "batch"}})
    model = dt.onnx.load("model.onnx")

``writing`` makes a model of an exported program: a table says for each primitive, by the version
of the operator set, which nodes it is. ``reading`` makes a Module of a model: a table says for each
operator, by domain and version, which of our functions it is. Neither knows the other. Files are
decoded and checked by the package ``onnx``, which the extra of that name brings.
"""

from ..errors import ConfigError

try:
    import onnx as _onnx
except ImportError as error:
    raise ConfigError(
        f"onnx: {error.name} is missing, which decodes models: pip install 'disttrain[onnx]'"
    ) from None

from .reading import load
from .writing import ONNXProgram, export

__all__ = ["ONNXProgram", "export", "load"]
