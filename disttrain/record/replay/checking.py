"""What a replay computes, row by row beside the recording: takes the place of the writer of rows.

Rows meet by step, phase, kind, module, name and what they are about, each with the next one of
those; rows of collectives by their numbers. So threads, and works that end a little earlier, change
nothing. Rows of one step are read at a time.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import rows
from ..alignment import BY_ABOUT
from ..reader import texts_of, whole_rows
from ..rows import KINDS, NOTHING, Measure, Writer

_BY_NUMBER = (rows.COLLECTIVE, rows.RECEIVED)
_TEXTS = ("name", "module", "site", "shape", "about")


class Checker(Writer):
    """Compares rows with those in ``folder`` of ``rank``. ``differs``: is told what differs.
    ``num_rows``: how many there were; None where the rank was killed, which had more than it had
    written."""

    def __init__(
        self, folder: str, rank: int, differs: Callable[[str], None], num_rows: int | None = 0
    ) -> None:  # fmt: skip
        bin_file, names, _ = rows.paths(folder, rank)
        there = os.path.exists(bin_file)
        self._table = whole_rows(bin_file) if there else np.empty(0, rows.ROW)
        self._texts = texts_of(names) if there else [""]
        self._known = {t: i for i, t in reversed([*enumerate(self._texts)])}
        self.folder, self.open, self.count, self.compared = folder, True, 0, 0
        self._differs = differs
        self._calls: dict[tuple, deque] = defaultdict(deque)
        self.whole_rows = len(self._table)
        self.torn = num_rows is None or len(self._table) < num_rows
        self._step = -1
        self._rest: dict[tuple, deque] = {}
        kinds = self._table["kind"]
        self._plain = np.flatnonzero(~np.isin(kinds, _BY_NUMBER))
        for i in np.flatnonzero(np.isin(kinds, _BY_NUMBER)):
            self._calls[self._key(self._table[i])].append(i)

    def text(self, text: str) -> int:
        """The number of a text, as in the recording where it has it."""
        found = self._known.get(text)
        if found is None:
            found = self._known.setdefault(text, len(self._texts))
            self._texts.append(text)
        return found

    def put(
        self, kind: int, phase: int, step: int, texts: tuple[int, int, int, int, int],
        found: Measure = NOTHING, inputs: tuple[int, ...] = (),
    ) -> int:  # fmt: skip
        """Compare a row."""
        self.count += 1
        if kind in _BY_NUMBER:
            key: tuple = (kind, texts[0], texts[4])
            queue = self._calls.get(key)
        else:
            if step > self._step:
                self._next(step)
            about = texts[4] if kind in BY_ABOUT else 0
            key = (step, phase, kind, texts[1], texts[0], about)
            queue = self._rest.get(key)
        where = self._place(kind, texts)
        if not queue:
            if kind in _BY_NUMBER or self._is_past_end():  # calls: the log says what was instead
                return self.count
            self._differs(f"{where} is not in the recording")
            return self.count
        was = self._table[queue.popleft()]
        self.compared += 1
        if int(was["shape"]) != texts[3]:
            self._differs(f"{where} is {self._texts[texts[3]]}; recorded is "
                          f"{self._texts[int(was['shape'])]} at {self._site(was)}")  # fmt: skip
        elif int(was["hash"]) != found.hash:
            self._differs(f"{where} {self._how(kind, texts, was)}")
        return self.count

    def _is_past_end(self) -> bool:
        """Whether all rows are compared of a recording that ends early."""
        last = int(self._table["step"][-1]) if len(self._table) else -1
        return self.torn and self._step >= last and not any(self._rest.values())

    def _key(self, row: Any) -> tuple:
        kind, name, about = int(row["kind"]), int(row["name"]), int(row["about"])
        if kind in _BY_NUMBER:
            return kind, name, about
        if kind not in BY_ABOUT:
            about = 0
        return int(row["step"]), int(row["phase"]), kind, int(row["module"]), name, about

    def _next(self, step: int) -> None:
        """Step ``step`` begins: of those before nothing may be left."""
        self._missing()
        self._step, self._rest = step, defaultdict(deque)
        steps = self._table["step"][self._plain]
        for i in self._plain[np.searchsorted(steps, step) : np.searchsorted(steps, step, "right")]:
            self._rest[self._key(self._table[i])].append(i)

    def _missing(self) -> None:
        left = [q[0] for q in self._rest.values() if q]
        if left:
            was = self._table[min(left)]
            texts = tuple(int(was[name]) for name in _TEXTS)
            self._differs(f"{self._place(int(was['kind']), texts)} is missing; it was recorded")

    def finish(self, whole: bool) -> None:
        """The program has ended; ``whole``: as the recorded one did, so nothing may be left."""
        if not whole:
            return
        self._missing()
        later = self._table["step"][self._plain] > self._step
        rest = [*self._plain[later][:1], *[q[0] for q in self._calls.values() if q]]
        if rest:
            was = self._table[min(rest)]
            texts = tuple(int(was[name]) for name in _TEXTS)
            self._differs(f"{self._place(int(was['kind']), texts)} is missing; it was recorded")

    def _place(self, kind: int, texts: tuple) -> str:
        name, module, site, _, about = (self._texts[t] for t in texts)
        told = about and kind in (*BY_ABOUT, *_BY_NUMBER)
        said = f"{KINDS[kind]} {name}" + (f" ({about})" if told else "")
        inside = f" of module {module}" if module else ""
        return said + inside + (f" at {site}" if site else "")

    def _how(self, kind: int, texts: tuple, was: Any) -> str:
        """In which way a value differs from the recorded one."""
        mine, other = self._texts[texts[4]], self._texts[int(was["about"])]
        if mine != other:
            a, b = (set(text.split(", ")) for text in (mine, other))
            said, told = (", ".join(sorted(x)) for x in (a - b, b - a))
            return f"differs: {said}; recorded is {told}"
        at = self._site(was)
        return "has other bits than recorded" + (f" (at {at})" if at else "")

    def _site(self, row: Any) -> str:
        return self._texts[int(row["site"])]

    def flush(self) -> None:
        """Nothing is written."""

    def flush_soon(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """Nothing is written."""
        self.open = False


__all__ = ["Checker"]
