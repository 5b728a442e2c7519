"""GGUF files, which llama.cpp and its relatives run: ``save`` and ``load`` with tensors as F32,
F16, BF16 and Q8_0 (Q4_0 to Q5_1 are read, too), and models of known architectures under
Hugging Face's names (``from_pretrained``, ``to_pretrained``)."""

from .architectures import from_pretrained, to_pretrained
from .file import GGUF, load, save
from .vocabulary import Vocabulary

__all__ = ["GGUF", "Vocabulary", "from_pretrained", "load", "save", "to_pretrained"]
