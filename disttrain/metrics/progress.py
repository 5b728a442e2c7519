"""A live view of a run: a progress bar on a terminal, plain lines elsewhere.

Shows how far the run is, what the caller says of it (``epoch 3/20``, loss ...), samples per
second and the time left. Knows nothing of training, ranks or files.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

from ..context import now

_BAR = 24


class Progress:
    """Progress over ``total`` samples (``done`` of them before this run, when it was resumed).

    On a terminal one bar redraws itself; elsewhere a line comes at most every ``interval``
    seconds. ``enabled=False`` (the other ranks) makes every method do nothing.
    """

    def __init__(
        self,
        total: int,
        *,
        done: int = 0,
        enabled: bool = True,
        interval: float = 2.0,
        stream: TextIO | None = None,
    ) -> None:
        self.total, self.done, self.enabled, self.interval = total, done, enabled, interval
        self._stream = sys.stderr if stream is None else stream
        self._before, self._start = done, now()
        self._last = self._start
        self._title = ""
        self._bar = self._make_bar() if enabled and self._stream.isatty() else None

    def _make_bar(self) -> Any:
        from tqdm import tqdm  # only a terminal needs it

        tqdm.monitor_interval = 0  # the monitor is a thread, and programs that use this class fork
        return tqdm(
            total=self.total,
            initial=self.done,
            unit=" samples",
            unit_scale=True,
            dynamic_ncols=True,
            file=self._stream,
            leave=False,
        )

    def title(self, text: str) -> None:
        """What stands in front of the bar, as in ``epoch 3/20``."""
        self._title = text
        if self._bar is not None:
            self._bar.set_description_str(text)

    def update(self, num_samples: int, note: str = "") -> None:
        """``num_samples`` more are done; ``note`` stands behind the bar, as in ``loss 0.123``."""
        if not self.enabled:
            return
        self.done += num_samples
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(num_samples)
        elif now() - self._last >= self.interval:
            self._last = now()
            self.say(self.line(note))

    def say(self, text: str) -> None:
        """Print a line of its own, above the bar."""
        if not self.enabled:
            return
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    @property
    def rate(self) -> float:
        """Samples per second since the start of this run."""
        return (self.done - self._before) / max(now() - self._start, 1e-9)

    def line(self, note: str = "") -> str:
        """The state as one line of text."""
        part = min(self.done / self.total, 1.0) if self.total else 1.0
        filled = int(part * _BAR)
        bar = "=" * filled + (">" + " " * (_BAR - filled - 1) if filled < _BAR else "")
        left = (self.total - self.done) / self.rate if self.rate > 0 else 0.0
        head = f"{self._title}  " if self._title else ""
        notes = f"  {note}" if note else ""
        clock = f"{self.rate:,.0f} samples/s  {_clock(left)} left"
        return f"{head}[{bar}] {part:4.0%}{notes}  {clock}"

    def close(self) -> None:
        """Remove the bar. Closing twice is fine."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _clock(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
