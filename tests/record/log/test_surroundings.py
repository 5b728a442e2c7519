"""On what a rank ran, and what differs here."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from disttrain import context
from disttrain.record.log import surroundings

pytestmark = pytest.mark.simulated


def test_it_is_data_without_secrets(monkeypatch):
    monkeypatch.setenv("API_TOKEN", "secret")
    monkeypatch.setenv("DISTTRAIN_TOKEN_FILE", "/secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = json.loads(json.dumps(surroundings.process()))
    assert "secret" not in json.dumps(told)
    assert told["env"]["OMP_NUM_THREADS"] == "3" and told["env"]["WORLD_SIZE"] == "1"
    assert {"numpy", "python", "blas", "cpu", "disttrain"} <= set(told["versions"])


def test_the_launcher_says_what_runs():
    slots = context.current().slots
    slots[context.PROGRAM_SLOT] = (["train.py", "--x"], False, True, "face")
    try:
        words, is_module, plain, face = surroundings.program()
    finally:
        del slots[context.PROGRAM_SLOT]
    assert words[0].endswith("/train.py") and words[1:] == ["--x"]
    assert (is_module, plain, face) == (False, True, "face")


def test_random_numbers_go_on_as_they_did():
    kept = random.getstate(), np.random.get_state()  # noqa: NPY002
    slots = context.current().slots
    seed = slots.get(context.SEED_SLOT)
    try:
        told = json.loads(json.dumps(surroundings.process()))
        first = random.random(), np.random.rand()  # noqa: NPY002
        surroundings.seed_again(told)
        assert (random.random(), np.random.rand()) == first  # noqa: NPY002
    finally:
        random.setstate(kept[0]), np.random.set_state(kept[1])  # noqa: NPY002
        slots[context.SEED_SLOT] = seed


def test_what_differs_is_said(tmp_path):
    notes = surroundings.version_notes({"numpy": "1", "cpu": "a"}, {"numpy": "2", "cpu": "a"})
    assert notes == ["numpy: 1 when recorded, 2 here"]
    file = tmp_path / "a.py"
    file.write_text("1")
    was = {
        str(file): surroundings.hash_of_file(str(file)),
        "/gone.py": "0",
        "/x/disttrain/a.py": "",
    }
    assert surroundings.code_notes(was, {}) == ["/gone.py is not here"]
    file.write_text("2")
    assert f"{file} has changed" in surroundings.code_notes(was, {})
    assert surroundings.code_files(["json", "disttrain.context"]) == [
        surroundings.code_files(["disttrain.context"])[0]
    ]
