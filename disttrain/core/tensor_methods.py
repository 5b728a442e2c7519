"""What ``ops/methods.py`` gives to Tensor, by name: for type checkers and editors, which cannot see
what is attached at run time. The stub beside this file is made by ``scripts/stubs``."""

from __future__ import annotations


class TensorMethods:
    """Empty: Tensor itself gets the methods."""
