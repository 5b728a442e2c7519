"""The stand-in has the names, parameters and numbers of nccl4py, as far as they are used.

``nccl4py.json`` holds what nccl4py 0.6 itself says (``python tests/standins/nccl/record.py``
writes it, with nccl4py installed; it needs no NCCL and no driver); where it is installed, the
record is compared with it.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from pathlib import Path

import pytest
from standins.device_double.double import DoublePlatform
from standins.nccl import binding, record

from disttrain.comm.transports import nccl

FOLDER = Path(record.__file__).parent
RECORD = json.loads((FOLDER / "nccl4py.json").read_text())


@pytest.fixture(scope="module")
def standin():
    return binding.StandIn(DoublePlatform(1))


@pytest.mark.parametrize("where", ["core", "raw"])
def test_parameters_are_those_of_the_real_ones(standin, where):
    names = [name for name in RECORD[where] if name not in ("properties", "NCCLConfig")]
    for name in names:
        found = getattr(standin, where)
        for part in name.split("."):
            found = getattr(found, part)
        assert record.parameters(found) == [tuple(p) for p in RECORD[where][name]], name


def test_members_have_the_real_numbers(standin):
    for name, members in RECORD["members"].items():
        found = getattr(standin.core, name, None) or getattr(standin.raw, name)
        assert {m.name: int(m) for m in found}.items() <= members.items(), name


def test_nothing_is_called_that_is_not_recorded():
    """Of ``raw`` and ``core``, by the text of the package."""
    text = "\n".join(p.read_text() for p in Path(nccl.__file__).parent.glob("*.py"))
    classes = {"Communicator", "UniqueId", "NCCLConfig", "NcclInvalid", *RECORD["members"]}
    called = set(re.findall(r"\bcore\.(\w+)", text)) - {"group_start", "group_end"}
    assert called <= {*RECORD["core"], *classes}, called
    moved = set(re.findall(r"\braw\.(\w+)", text))
    assert moved <= {*RECORD["raw"], *RECORD["members"], "NCCLError", "Comm"}, moved


@pytest.mark.skipif(importlib.util.find_spec("nccl") is None, reason="nccl4py is not installed")
def test_the_record_is_that_of_the_real_one():
    assert record.recorded() == RECORD


def test_the_stand_in_keeps_to_the_record_in_kind(standin):
    assert all(inspect.isfunction(f) or callable(f) for f in vars(standin.raw).values())
