"""Where in the program, and what things are called."""

from __future__ import annotations

import functools

from disttrain import nn
from disttrain.sanitize.places import Names, Place, forward_of, here, listed, unwrapped
from support.sanitized import Net


def test_the_line_that_has_called_this_package():
    def called() -> Place:
        return here()

    place = called()  # (the frame of a caller of this package's is passed over)
    assert place.file == __file__ and str(place) == f"{__file__}:{place.line}"
    assert functools.partial(called)().file == __file__


def test_where_forward_is_defined():
    place = forward_of(Net())
    assert place is not None and place.file.endswith("sanitized.py")
    assert forward_of(nn.Linear(2, 2)) is None


def test_names_in_trees():
    names, model = Names(), Net()
    assert names.module(model.first) == "Linear"
    names.roots.add(model.first)
    names.roots.add(model)
    assert names.module(model.first) == "Net.first"
    assert names.module(model) == "Net"
    assert names.tensors([model.norm.running_mean]) == ["Net.norm.running_mean"]


def test_wrappers_are_left_out():
    class DataParallel(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    names, model = Names(), Net()
    wrapped = DataParallel(DataParallel(model))
    assert unwrapped(wrapped) is model
    names.roots.add(wrapped)
    assert names.module(model.last) == "Net.last"


def test_many_names_are_cut_short():
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefg")) == "a, b, c, d and 3 more"
