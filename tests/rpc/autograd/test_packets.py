"""What went wrong in a backward pass, as the worker that called it is told."""

from __future__ import annotations

from disttrain.errors import AutogradError, PeerFailed
from disttrain.rpc.autograd.packets import failure_of, to_raise


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


def test_an_error_is_told_with_its_worker_and_traceback():
    failure = failure_of(raised(KeyError("lost")), 3, "trainer")
    assert (failure.worker, failure.kind, failure.peer) == (3, "KeyError", None)
    error = to_raise(failure, 17)
    assert isinstance(error, AutogradError)
    text = str(error)
    assert text.startswith("Error on Node 3: 'lost'")
    assert "KeyError on worker 'trainer'" in text and "context 17" in text
    assert "in raised" in text


def test_a_dead_peer_stays_one():
    """Whoever called is told of the rank that has died, not of the worker that has seen it."""
    failure = failure_of(raised(PeerFailed(2, "killed", "stack", "a call", True)), 1, "seer")
    error = to_raise(failure, 17)
    assert isinstance(error, PeerFailed)
    assert (error.rank, error.cause, error.traceback, error.ended) == (2, "killed", "stack", True)
    assert "as worker 'seer' found" in str(error)
