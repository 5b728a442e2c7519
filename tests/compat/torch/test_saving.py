"""``save`` and ``load`` with PyTorch's arguments: what is said of pickling has no effect."""

from __future__ import annotations

import io
import pickle

import pytest

import disttrain as dt
from disttrain.compat.torch import saving
from disttrain.errors import SerializationError

pytestmark = pytest.mark.simulated


class Own:
    """A class that a file may name only where it is allowed."""

    def __init__(self, x):
        self.x = x


def saved(obj, *args, **options):
    f = io.BytesIO()
    saving.save(obj, f, *args, **options)
    f.seek(0)
    return f


def test_arguments_about_pickling_change_nothing():
    state = {"w": dt.ones(2), "n": 3}
    plain = saved(state).getvalue()
    for options in ({"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False},
                    {"pickle_module": pickle}):  # fmt: skip
        assert saved(state, **options).getvalue() == plain
    found = saving.load(saved(state), "cpu", pickle, encoding="latin1")
    assert found["w"].tolist() == [1.0, 1.0] and found["n"] == 3


def test_classes_must_be_allowed_unless_the_program_trusts_the_file():
    with pytest.raises(SerializationError, match="Weights only load failed"):
        saving.load(saved(Own(1)))
    with pytest.raises(SerializationError, match="Weights only load failed"):
        saving.load(saved(Own(1)), pickle_module=pickle, weights_only=True)
    assert saving.load(saved(Own(1)), weights_only=False).x == 1
    assert saving.load(saved(Own(1)), pickle_module=pickle).x == 1  # as before there was a choice
    with saving.modules()["torch.serialization"].safe_globals([Own]):
        assert saving.load(saved(Own(2))).x == 2


def test_storages_are_told_from_tensors():
    t = dt.ones(2)
    assert saving.is_storage(t.untyped_storage()) and saving.is_storage(t.storage())
    assert not saving.is_storage(t) and not saving.is_storage(b"")


def test_modules_have_the_functions():
    found = saving.modules()
    assert found["torch.serialization"].load is saving.load
    assert isinstance(dt.ones(1).untyped_storage(), found["torch.storage"].UntypedStorage)
