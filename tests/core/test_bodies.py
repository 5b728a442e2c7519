"""Bodies as data: what runs, what is left out, whose memory results have."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain.core.bodies import Body, Ref, Step, held, own
from disttrain.ops.primitives import elementwise as el

F = ((3,), np.dtype("float32"))


def body():
    steps = [
        Step(el.mul, (Ref(0), 2.0), {}, [2]),
        Step(el.add, (Ref(2), Ref(1)), {}, [3]),
        Step(el.neg, (Ref(0),), {}, [4]),  # of no use
    ]
    return Body(2, steps, [F] * 5, [3, 0])


def test_it_runs_on_arrays_and_on_tensors():
    found, a, b = body(), np.float32([1, 2, 3]), np.float32([4, 5, 6])
    out, same = found.run()([a, b])
    assert out.tolist() == [6.0, 9.0, 12.0] and same is a
    out, same = found(dt.tensor(a), dt.tensor(b))
    assert out.tolist() == [6.0, 9.0, 12.0]
    assert len(found.steps) == 2 and not found.effects and "%3: float32[3] = add" in str(found)
    assert found.given == [F, F] and found.results == [F, F]


def test_results_get_memory_of_their_own():
    found, a = body(), np.ones(3, np.float32)
    out, same = found.run()([a, a])
    assert own(out, [a], found) is out and own(same, [a], found) is not a
    assert own(a[1:], [], found).base is None


def test_what_runs_often_is_shortened():
    dt.compile(lambda: None)
    found, a = body(), np.ones(3, np.float32)
    few = found.run()([a, a])[0]
    assert (found.run(1000)([a, a])[0] == few).all() and found._short


def test_nothing_goes_back_through_held():
    x = dt.ones(3, requires_grad=True)
    assert not held(x).requires_grad and dt.equal(held(x), x)
