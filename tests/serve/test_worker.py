"""A worker, asked as the front asks it; here it is a thread."""

import threading

import numpy as np
import pytest

from disttrain.errors import ShapeError
from disttrain.serve.messages import pair
from disttrain.serve.models import Model
from disttrain.serve.signature import Signature, Spec
from disttrain.serve.slabs import Slab
from disttrain.serve.worker import Worker

SIGNATURE = Signature(
    (Spec("x", "float32", ("b", 3)),),
    (Spec("y", "float32", ("b", 3)), Spec("n", "int64", ())),
    {"b": (1, None)},
    "b",
)


def run(arrays):
    x = arrays["x"]
    if x[0, 0] == -1:
        raise ShapeError("x: wrong")
    if x[0, 0] == -2:
        raise OSError("lost")
    if x[0, 0] == -3:
        return {"y": x, "n": np.float32(3)}  # of another type than it says
    return {"y": x * 2, "n": np.array(len(x))}


@pytest.fixture
def asked(tmp_path):
    """The front's end, the slabs, and what the worker has said first."""
    file = tmp_path / "m"
    file.write_text("")
    ours, theirs = pair()
    slabs = [(Slab(), Slab()) for _ in range(2)]
    worker = Worker(theirs, slabs)
    assert worker.load({"m": str(file)}, {"m": str(file)}, lambda name, path: Model(SIGNATURE, run))
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield ours, slabs, ours.receive()
    ours.close()
    thread.join(10)
    assert not thread.is_alive()  # it ends with the channel
    theirs.close()
    for inlet, outlet in slabs:
        inlet.close()
        outlet.close()


def test_a_batch_goes_through_memory(asked) -> None:
    channel, slabs, told = asked
    assert Signature.read(told["ready"]["m"]["signature"]) == SIGNATURE
    for number, rows in enumerate((1, 4, 20_000)):
        slot, size = number % 2, 12 * rows
        slabs[slot][0].grow(size)
        slabs[slot][0].array(0, (rows, 3), np.dtype("float32"))[...] = number + 1
        channel.send({"run": number, "model": "m", "slot": slot, "inputs": [[[rows, 3], 0]]})
        said = channel.receive()
        assert said["ran"] == number and said["s"] >= 0
        (y, n) = said["outputs"]
        outlet = slabs[slot][1]
        assert (outlet.array(y[1], tuple(y[0]), np.dtype("float32")) == 2 * (number + 1)).all()
        assert outlet.array(n[1], tuple(n[0]), np.dtype("int64")) == rows


@pytest.mark.parametrize(
    ("number", "status", "text"),
    [(-1, 400, "x: wrong"), (-2, 500, "OSError: lost"), (-3, 500, "Assertion")],
)
def test_an_error_is_an_answer(asked, number, status, text) -> None:
    channel, slabs, _ = asked
    for _ in range(2):
        slabs[0][0].array(0, (1, 3), np.dtype("float32"))[...] = number
        channel.send({"run": 1, "model": "m", "slot": 0, "inputs": [[[1, 3], 0]]})
        said = channel.receive()
        assert said["status"] == status and said["error"].startswith(text)


def test_a_file_that_cannot_be_opened_is_named_as_people_know_it(tmp_path) -> None:
    def opener(name, path):
        raise ShapeError(f"{path}: no")

    ours, theirs = pair()
    assert not Worker(theirs, []).load({"m": "m.dtp"}, {"m": "/proc/self/fd/9"}, opener)
    assert ours.receive() == {"failed": "m.dtp: no"}
    ours.close()
    theirs.close()
