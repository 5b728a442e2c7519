"""What is legal and what is refused, call by call, as in PyTorch: nothing legal is refused, and no
error is silent."""

from __future__ import annotations

from collections import Counter

import pytest

import disttrain as dt
import disttrain.nn
from support.cases.legal_cases import GROUPS, outcome

# Where PyTorch's outcome is no meaning to follow: (function, PyTorch refuses, reason).
ODD = {
    ("logsumexp", True): "dim=() is refused there without keepdim, and allowed with it",
    ("pad circular", False): "repeats what was cropped to nothing: memory that nobody wrote",
    ("index_add", False): "an index out of range is not noticed where the tensor is empty",
}


@pytest.mark.peer
@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
def test_calls_have_the_outcome_that_they_have_in_pytorch(group):
    torch = pytest.importorskip("torch")
    different, asked = [], 0
    for name, label, call in group():
        asked += 1
        theirs, ours = outcome(call, torch), outcome(call, dt)
        if theirs != ours and (name, theirs == "!") not in ODD:
            different.append(f"{name}{label}: PyTorch {theirs}, ours {ours}")
    assert asked > 1000
    assert different == []


def test_every_call_ends_in_a_result_or_in_an_error_for_users():
    """Each tenth call, without PyTorch: many results, many errors, and no other exception."""
    seen: Counter = Counter()
    for group in GROUPS:
        for i, (name, label, call) in enumerate(group()):
            if i % 10 == 0:
                said = outcome(call, dt)
                assert not said.startswith("bug"), (name, label, said)
                seen["error" if said == "!" else "result"] += 1
    assert seen["error"] > 500 and seen["result"] > 500
