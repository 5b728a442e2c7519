"""Faces of other frameworks hold names and conventions: they call no numerics of NumPy, and stay
within their sizes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

COMPAT = Path(__file__).parents[2] / "disttrain" / "compat"
# Lines, blank ones included. Aimed at: 3,000, 2,500 and 300; a number here only ever gets smaller.
SIZES = {"jax": 2966, "tensorflow": 2452, "keras": 300}
FACES = [face for face in SIZES if (COMPAT / face).is_dir()]

# What a face may ask of NumPy: types and what numbers they have, shapes, conversion from and to
# other people's arrays, and names that are to be NumPy's own (classes of types, constants).
TYPES = """
bool_ bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64
complex128 str_ bytes_ object_ intp dtype generic number integer signedinteger unsignedinteger
inexact floating complexfloating void issubdtype can_cast result_type promote_types finfo iinfo
typing dtypes character flexible
"""
SHAPES = "prod ndim shape size broadcast_shapes ndarray isscalar iterable newaxis s_ index_exp"
CONVERSION = """
asarray array ascontiguousarray empty zeros frombuffer fromfile fromiter from_dlpack array2string
array_repr array_str set_printoptions get_printoptions printoptions save savez savez_compressed load
atleast_1d arange full ones flatnonzero einsum_path random memmap lib copyto expand_dims stack
concatenate nditer ndindex array_equal
"""
CONSTANTS = "pi e inf nan euler_gamma"
ALLOWED = set(f"{TYPES} {SHAPES} {CONVERSION} {CONSTANTS}".split())


def modules(face: str) -> list[Path]:
    return sorted((COMPAT / face).rglob("*.py"))


def asked_of_numpy(text: str) -> set[str]:
    """The names of NumPy that a module reads, by whatever name it imports it."""
    tree, known = ast.parse(text), set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {a.asname or a.name for a in node.names if a.name.split(".")[0] == "numpy"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numpy":
            found |= {a.name for a in node.names} if not node.level else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {node.attr} if node.value.id in known else set()
    return found


@pytest.mark.parametrize("face", FACES)
def test_faces_hold_no_numerics(face):
    wrong = {
        str(path.relative_to(COMPAT)): sorted(asked_of_numpy(path.read_text()) - ALLOWED)
        for path in modules(face)
    }
    assert not {path: names for path, names in wrong.items() if names}, (
        "a face holds names and conventions; write what computes natively, with all its rules"
    )


@pytest.mark.parametrize("face", FACES)
def test_faces_are_thin(face):
    lines = sum(len(path.read_bytes().splitlines()) for path in modules(face))
    assert lines <= SIZES[face]


def test_the_reading_finds_what_is_asked():
    text = "import numpy as np\nfrom numpy import sin\nimport numpy.linalg as la\nnp.dot(la.inv(x))"
    assert asked_of_numpy(text) == {"sin", "dot", "inv"}
