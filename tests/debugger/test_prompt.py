"""Where the debugger stops, and how it lets go."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from disttrain import context
from disttrain.debugger import prompt, session, stopping
from disttrain.errors import WaitTimeout


class Script:
    """A terminal at which somebody types ``words``. ``seen``: what came of it."""

    stays = True

    def __init__(self, *words: str) -> None:
        self.words, self.said = words, io.StringIO()
        self.takes: list[str] = []
        self.leaves: list[str] = []

    def take(self, kind: str, where: str, seconds: float) -> None:
        self.takes.append(where)
        self._before = sys.stdin, sys.stdout
        sys.stdin, sys.stdout = io.StringIO("".join(w + "\n" for w in self.words)), self.said
        self.words = self.words[1:]

    def leave(self, how: str) -> None:
        self.leaves.append(how)
        sys.stdin, sys.stdout = self._before


@pytest.fixture
def rank() -> Iterator[context.Rank]:
    with context.attach(context.Rank(3, 4)) as place:
        hook, trace = sys.breakpointhook, sys.gettrace()
        sys.breakpointhook = stopping.hook
        yield place
        sys.breakpointhook = hook
        sys.settrace(trace)


def at(place: context.Rank, *words: str) -> Script:
    made = Script(*words)
    place.slots[session.TERMINAL_SLOT] = lambda: made
    return made


def test_it_stops_in_the_callers_line_and_goes_on(rank: context.Rank) -> None:
    script = at(rank, "p value", "n", "n", "!value = 7", "c")
    value = 40
    breakpoint()
    value += 1
    value += 1
    said = script.said.getvalue()
    assert "-> breakpoint()" in said and "40" in said and said.count("-> value += 1") == 2
    assert "(Pdb rank 3)" in said
    assert script.leaves == ["goes on"] and len(script.takes) == 1
    assert value in (7, 8)
    assert "test_prompt.py" in script.takes[0]


def test_ctrl_c_is_never_the_programs(rank: context.Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the prompt listens, in a command, and when the terminal is being given back."""
    script = at(rank, "import signal; signal.raise_signal(signal.SIGINT)", "p 40 + 2", "c")
    shows, leave = prompt.Debugger.print_stack_entry, script.leave

    def interrupted(self: Any, *args: Any) -> None:
        shows(self, *args)
        signal.raise_signal(signal.SIGINT)

    def leaves(how: str) -> None:
        signal.raise_signal(signal.SIGINT)
        leave(how)

    monkeypatch.setattr(prompt.Debugger, "print_stack_entry", interrupted)
    monkeypatch.setattr(script, "leave", leaves)
    before = signal.getsignal(signal.SIGINT)
    breakpoint()
    assert script.leaves == ["goes on"] and signal.getsignal(signal.SIGINT) == before
    assert "KeyboardInterrupt" in script.said.getvalue() and "42" in script.said.getvalue()


def test_another_rank_is_not_meant(rank: context.Rank) -> None:
    script = at(rank, "c")
    breakpoint(1)
    breakpoint(rank=2)
    assert script.takes == []
    breakpoint(3)
    assert len(script.takes) == 1


@pytest.mark.parametrize("words", [{"port": 3}, {"rank": "1"}])
def test_wrong_words(rank: context.Rank, words: dict[str, Any]) -> None:
    at(rank, "c")
    with pytest.raises(TypeError, match="takes a rank, header= and commands= alone"):
        breakpoint(**words)
    with pytest.raises(TypeError):
        breakpoint(1, 2)


def test_header_and_commands(rank: context.Rank) -> None:
    script = at(rank, "c")
    breakpoint(header="look here", commands=["p 6 * 7"])
    assert "look here" in script.said.getvalue() and "42" in script.said.getvalue()


@pytest.mark.parametrize("word", ["q", "exit", "quit", "EOF"])
def test_quit_is_no_exception(rank: context.Rank, word: str) -> None:
    script = at(rank, word)
    with pytest.raises(prompt.Quit) as raised:
        try:
            breakpoint()
        except Exception:
            raise AssertionError from None
    assert raised.value.code == 1 and "rank 3 was ended by `quit`" in raised.value.told
    assert script.leaves == ["was quit"]


def test_quit_at_a_later_line(rank: context.Rank) -> None:
    at(rank, "n", "q")
    with pytest.raises(prompt.Quit):
        breakpoint()
        assert rank


def test_nobody_comes(rank: context.Rank) -> None:
    class Nobody(Script):
        def take(self, kind: str, where: str, seconds: float) -> None:
            raise WaitTimeout("nobody")

    nobody = Nobody()
    rank.slots[session.TERMINAL_SLOT] = lambda: nobody
    with pytest.raises(WaitTimeout, match="nobody"):
        breakpoint()
    assert sys.gettrace() is None
    with pytest.raises(WaitTimeout, match="nobody"):  # once more
        breakpoint()


def test_what_cannot_be_done_in_a_rank(rank: context.Rank) -> None:
    script = at(rank, "run", "restart", "c")
    breakpoint()
    assert script.said.getvalue().count("cannot be run anew") == 2


def test_a_breakpoint_in_an_expression_at_the_prompt_is_passed_by(rank: context.Rank) -> None:
    script = at(rank, "p (breakpoint(), 5)", "c")
    breakpoint()
    assert "(None, 5)" in script.said.getvalue() and len(script.takes) == 1


def test_post_mortem_shows_the_program_s_frames(rank: context.Rank) -> None:
    script = at(rank, "p secret", "up", "where", "q")

    def inner() -> None:
        secret = 11
        raise ValueError(f"bad {secret}")

    try:
        inner()
    except ValueError as error:
        stopping.post_mortem(error)
    said = script.said.getvalue()
    assert "ValueError: bad 11" in said and "-> raise ValueError" in said and "-> inner()" in said
    assert script.leaves == ["ends with its error"]


def test_an_error_of_ours_is_shown_where_the_program_called_us(rank: context.Rank) -> None:
    script = at(rank, "q")
    try:
        context.wait_until(lambda: False, lambda: "nothing", 0.01)
    except WaitTimeout as error:
        stopping.post_mortem(error)
    assert "-> context.wait_until(" in script.said.getvalue()


def test_the_users_frame() -> None:
    frames = []

    def ready() -> bool:
        frames.append(sys._getframe())
        return True

    context.wait_until(ready, str)
    assert prompt.user_frame(frames[0]) is frames[0]
    inner = frames[0].f_back
    assert inner is not None and inner.f_globals["__name__"] == "disttrain.context"
    assert prompt.user_frame(inner) is sys._getframe()


def test_a_program_s_own_debugger_is_heard(
    rank: context.Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = at(rank, "c")
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    breakpoint()
    assert script.takes == []
    monkeypatch.delenv("PYTHONBREAKPOINT")
    rank.slots[stopping.MUTED_SLOT] = True
    breakpoint()
    assert script.takes == []
