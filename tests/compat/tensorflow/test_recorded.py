"""Calls give what TensorFlow has given (``recorded.json``; see ``cases``)."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from compat.tensorflow import cases

import disttrain.compat.tensorflow as tf

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
KINDS = sorted({e.partition("(")[0][:14] for e in RECORDED})


@pytest.mark.parametrize("kind", KINDS)
def test_calls_as_recorded(kind):
    for expression, answer in RECORDED.items():
        if expression.partition("(")[0][:14] != kind or cases.known_to_differ(expression):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of logarithms of nothing
            found = cases.evaluate(tf, expression)
        assert cases.same(answer, json.loads(json.dumps(found))), (expression, answer, found)


def test_names_that_are_used_most_are_there():
    for module, least in (("math", 90), ("nn", 40), ("linalg", 25), ("random", 14), ("image", 12)):
        shim = getattr(tf, module)
        assert len([n for n in dir(shim) if not n.startswith("_")]) >= least, module


def test_what_is_missing_is_said():
    with pytest.raises(AttributeError, match=r"tensorflow\.nn\.ctc_loss is not part of"):
        _ = tf.nn.ctc_loss
    with pytest.raises(AttributeError, match="ragged"):
        tf.ragged.constant([[1]])
    with pytest.raises(ValueError, match=r"no tf\.function"):
        tf.saved_model.save(None, "folder")
