"""What compiled functions do where nothing captured fits is a setting of the rank."""

from __future__ import annotations

import threading

import pytest

import disttrain as dt
from disttrain.compile.stance import set_stance, stance
from disttrain.errors import CaptureError


@pytest.fixture
def run():
    made = dt.compile(lambda x: x * 2, dynamic=False)
    yield made
    set_stance("default")


def captured(run) -> int:
    return len(run.graphs)


def test_inside_of_a_block_functions_run_as_they_are(run):
    with set_stance("force_eager"):
        assert run(dt.ones(2)).tolist() == [2, 2]
    assert captured(run) == 0 and stance() is None
    run(dt.ones(2))
    assert captured(run) == 1


def test_as_a_function_and_as_a_decorator(run):
    @set_stance("force_eager")
    def eager(x):
        assert stance() == "force_eager"
        return run(x)

    assert stance() is None
    eager(dt.ones(2))
    assert stance() is None and captured(run) == 0
    set_stance("eager_on_recompile")
    assert stance() == "eager_on_recompile"
    with set_stance("default"):
        assert stance() is None
    assert stance() == "eager_on_recompile"


def test_what_is_captured_is_replayed_and_nothing_new_is(run):
    run(dt.ones(2))
    with set_stance("eager_on_recompile"):
        assert run(dt.ones(2)).tolist() == [2, 2] and run(dt.ones(3)).tolist() == [2, 2, 2]
    with set_stance("fail_on_recompile"):
        assert run(dt.ones(2)).tolist() == [2, 2]
        with pytest.raises(CaptureError, match="fail_on_recompile"):
            run(dt.ones(3))
    assert captured(run) == 1
    run(dt.ones(3))
    assert captured(run) == 2


def test_the_first_call_may_be_left_out(run):
    with set_stance("eager_then_compile"):
        run(dt.ones(2))
        assert captured(run) == 0
        run(dt.ones(2))
        assert captured(run) == 1


def test_words_without_a_meaning_are_refused():
    with pytest.raises(CaptureError, match="known are default, force_eager"):
        set_stance("eager")
    with pytest.raises(CaptureError, match="force_backend"):
        set_stance("force_eager", force_backend="eager")
    with pytest.raises(CaptureError, match="Invalid backend"):
        set_stance(force_backend="no such")
    with pytest.raises(CaptureError, match="guards are looked at"):
        set_stance(skip_guard_eval_unsafe=True)
    set_stance(force_backend="eager")
    assert stance() is None


def test_no_function_sets_it_inside():
    @dt.compile
    def run(x):
        with set_stance("force_eager"):
            return x + 1

    with pytest.raises(CaptureError, match=r"set_stance in a torch\.compile region"):
        run(dt.ones(2))


def test_threads_of_a_rank_have_it_in_common(run):
    with set_stance("force_eager"):
        thread = threading.Thread(target=run, args=(dt.ones(2),))
        thread.start()
        thread.join()
    assert captured(run) == 0


def test_a_capture_that_takes_another_call_is_no_new_one():
    model = dt.nn.Linear(2, 2)
    model.forward = lambda x: x * 2  # code that nobody knows of before it has run
    model.compile()
    model(dt.ones(2))
    run = model._compiled_call_impl
    assert captured(run) == 0
    with set_stance("fail_on_recompile"):
        for _ in range(3):
            assert model(dt.ones(2)).tolist() == [2, 2]
    assert captured(run) == 1
