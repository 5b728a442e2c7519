"""Work: waiting, failing, following, together."""

from __future__ import annotations

import pytest

from disttrain.comm.calls.work import Done, Together, Work


class Steps(Work):
    """Ends after so many polls."""

    def __init__(self, left, result=None, error=None):
        super().__init__()
        self.left, self.outcome = left, (result, error)

    def _poll(self):
        self.left -= 1
        if self.left == 0:
            self._end(*self.outcome)

    def _block(self, timeout):
        while not self._done:
            self._poll()


def test_polling_and_waiting():
    work = Steps(2, "x")
    assert not work.is_completed() and work.exception() is None
    assert work.is_completed() and work.wait() == work.result() == "x"
    assert Steps(3, "y").wait() == "y"
    assert Done(4).wait() == 4


def test_failure_is_raised_by_every_wait():
    work = Steps(1, error=ValueError("no"))
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            work.wait()
    assert work.is_completed() and isinstance(work.exception(), ValueError)


def test_then_follows_results_and_errors():
    work = Steps(2, 3)
    seen = []
    after = work.then(lambda x: x + 1).then(lambda x: (seen.append(x), x)[1])
    assert not seen and after.wait() == 4 and seen == [4]
    assert work.then(lambda x: -x).wait() == -3
    failed = Steps(1, error=KeyError("k")).then(seen.append)
    with pytest.raises(KeyError):
        failed.wait()
    assert seen == [4]


def test_together():
    works = [Steps(3, "a"), Steps(1, "b")]
    both = Together(works)
    assert not both.is_completed() and both.wait() == ["a", "b"]
    both = Together([Steps(1), Steps(2, error=ValueError("second"))])
    with pytest.raises(ValueError, match="second"):
        both.wait()
    assert Together([]).wait() == []
