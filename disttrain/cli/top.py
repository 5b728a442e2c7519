"""``disttrain top``: a running job, live."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from ..errors import CommError, ConfigError
from ..watch import nodes, running, table
from ..watch.screen import BOLD, DIM, PLAIN, RED, REVERSE, YELLOW, Screen, is_terminal

_HELP = [
    "q quits, space looks again at once, + and - look less and more often,",
    "up, down, page up, page down scroll. Sort by:",
    *(f"  {key}  {name}" for key, (name, _) in table.SORTS.items()),
    "and the same key again turns the order round.",
    "",
    "LATE   how much later than the first it came to the last collectives, on average",
    "WAIT%  part of the time that it has waited for other ranks: who waits least is waited for",
    "CPU%   of one processor",
]
PATIENCE = 4.0  # ... for other nodes to tell how their ranks do
GAP = 0.5  # seconds between the two looks of --once


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", help="its name or pid (disttrain jobs); default: the one")
    parser.add_argument("--once", action="store_true", help="print one table (without a terminal)")
    parser.add_argument("--json", action="store_true", help="as --once, for programs")
    parser.add_argument(
        "-d", "--delay", type=float, default=1.0, metavar="S", help="seconds between looks"
    )
    orders = [name for name, _ in table.SORTS.values()]
    parser.add_argument("--sort", default="rank", choices=orders)


def run(options: argparse.Namespace) -> int:
    key = next(k for k, (name, _) in table.SORTS.items() if name == options.sort)
    job = running.find(options.job, any_node=True)
    if options.once or options.json or not is_terminal():
        return _once(job, key, options.json)
    with Screen() as screen:
        last = View(job, key, max(0.1, options.delay)).watch(screen)
    print("\n".join(last))
    return 0


class Others:
    """The ranks of other nodes, which are asked for while somebody looks."""

    def __init__(self, job: running.Job) -> None:
        self.job, self.fd = job, job.open_nodes() if job.num_nodes > 1 else -1

    def rows(self) -> list[table.Row]:
        """What they have told last."""
        if self.fd < 0:
            return []
        nodes.want(self.fd, time.monotonic() + nodes.WANTED)
        return table.of_others(nodes.get(self.fd)[1], self.job.node)[0]

    def wait(self) -> list[table.Row]:
        """Give them the time to tell: until all have, or it is over."""
        deadline = time.monotonic() + PATIENCE
        rows = self.rows()
        while self.fd >= 0 and time.monotonic() < deadline:
            if len(rows) >= self.job.world_size - self.job.num_ranks and _is_known(rows):
                break
            time.sleep(0.1)
            rows = self.rows()
        return rows

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _is_known(rows: list[table.Row]) -> bool:
    """Have they been looked at twice, as rates need?"""
    return all(row.steps_per_second is not None for row in rows if row.pid)


def _host(job: running.Job, host: str) -> str:
    """How a node is called in a table: as the others call it, where there are others."""
    return f"{host}:{job.front}" if job.num_nodes > 1 and job.front else host


def _once(job: running.Job, key: str, as_json: bool) -> int:
    box, others = job.open_box(), Others(job)
    before = table.look(box)
    elsewhere = others.wait()
    time.sleep(GAP)
    host = _host(job, box.about.get("host", ""))
    rows = [*table.rows(host, table.look(box), before, job.node), *elsewhere]
    rows.sort(key=lambda row: row.rank)
    box.close()
    others.close()
    if as_json:
        json.dump(table.as_data(job, rows), sys.stdout, indent=1)
        print()
    else:
        print(
            "\n".join([*table.heading(job, host, rows, time.time()), "", *table.lines(rows, key)])
        )
    return 0


class View:
    """What a person sees, and does with keys."""

    def __init__(self, job: running.Job, key: str, delay: float) -> None:
        self.job, self.key, self.delay = job, key, delay
        self.reverse = self.help = False
        self.first = 0  # of the ranks shown
        self.box, self.others = job.open_box(), Others(job)
        self.host = _host(job, str(self.box.about.get("host", "")))
        self.before: table.Look | None = None
        self.now = table.look(self.box)

    def watch(self, screen: Screen) -> list[str]:
        """Until a person or the job has had enough: what is to be printed then."""
        due = time.monotonic() + min(self.delay, 0.3)
        while True:
            rows = self.rows()
            screen.show(self.lines(rows, screen.size()[1]))
            pressed = screen.key(due - time.monotonic())
            if pressed == "q":
                return []
            self.press(pressed, screen.size()[1])
            if time.monotonic() >= due or pressed == " ":
                due = time.monotonic() + self.delay
                if not self.look():
                    return [*self.texts(rows), f"job {self.job.job} has ended"]

    def rows(self) -> list[table.Row]:
        """Of all ranks of the job, as far as they are known."""
        here = table.rows(self.host, self.now, self.before, self.job.node)
        return [*here, *self.others.rows()]

    def look(self) -> bool:
        """Look again; False where the job has ended."""
        if not self.job.runs or not os.path.exists(f"/proc/{self.job.pid}/fd/{self.job.box_fd}"):
            try:
                self._begin(running.find(str(self.job.pid)))
            except (ConfigError, CommError):
                return False
        same = [j for j in running.jobs() if j.pid == self.job.pid]
        if same and same[0].generation != self.job.generation:
            try:
                self._begin(same[0])
            except CommError:
                return True  # it is about to begin once more, or to end
        self.before, self.now = self.now, table.look(self.box)
        return True

    def _begin(self, job: running.Job) -> None:
        """The job has begun its next generation."""
        box, self.job = job.open_box(), job
        self.box.close()
        self.others.close()
        self.others = Others(job)
        self.box, self.now = box, table.look(box)

    def press(self, key: str, height: int) -> None:
        """What a key does."""
        moves = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "page up": 5 - height,
            "page down": height - 5,
        }
        if key in table.SORTS:
            self.reverse = key == self.key and not self.reverse
            self.key = key
        elif key in moves:
            self.first = max(0, min(self.first + moves[key], self.job.world_size - 1))
        elif key in ("+", "-"):
            self.delay = min(60.0, max(0.1, self.delay * (2.0 if key == "+" else 0.5)))
        elif key in ("h", "?"):
            self.help = not self.help

    def texts(self, rows: list[table.Row]) -> list[str]:
        """All of it as plain text."""
        head = table.heading(self.job, self.host, rows, time.time())
        return [*head, "", *table.lines(rows, self.key, self.reverse)]

    def lines(self, rows: list[table.Row], height: int) -> list[tuple[str, str]]:
        """What fits on a screen of this height."""
        head, title, *body = _split(self.texts(rows))
        shown = body[self.first : self.first + max(1, height - len(head) - 3)]
        order = "reversed " if self.reverse else ""
        foot = (
            f"q quit  h help  sorted by {table.SORTS[self.key][0]} {order} every {self.delay:g} s"
        )
        if len(shown) < len(body):
            foot += f"  ranks {self.first + 1} to {self.first + len(shown)} of {len(body)}"
        out = [(BOLD if i == 0 else PLAIN, text) for i, text in enumerate(head)]
        if self.help:
            return [*out, *((PLAIN, text) for text in _HELP), (DIM, foot)]
        by_rank = {str(row.rank): row for row in rows}
        styled = [(_style(by_rank[text.split(None, 1)[0]], rows), text) for text in shown]
        return [*out, (REVERSE, title), *styled, (PLAIN, ""), (DIM, foot)]


def _split(texts: list[str]) -> list:
    blank = texts.index("")
    return [texts[: blank + 1], *texts[blank + 1 :]]


def _style(row: table.Row, rows: list[table.Row]) -> str:
    """Red: it does not move or has failed; yellow: the others wait for it."""
    if row.state == "exit 0":
        return DIM
    if row.state in ("stopped", "in a debugger") or row.state.startswith("exit "):
        return RED
    others = [r.waited for r in rows if r.rank != row.rank and r.waited is not None]
    if others and row.waited is not None and min(others) > 0.3 and row.waited < min(others) / 3:
        return YELLOW
    return PLAIN
