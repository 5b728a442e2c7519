"""Numbers of a server, in the text format of Prometheus (exposition format 0.0.4). Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

Labels = tuple[str, ...]
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Family:
    """Values of one name, by their labels. ``kind``: "counter" or "gauge"."""

    def __init__(self, name: str, kind: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.kind, self.text, self.labels = name, kind, text, tuple(labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, value: float = 1.0, labels: Labels = ()) -> None:
        """Count ``value`` more."""
        self.values[labels] = self.values.get(labels, 0.0) + value

    def put(self, value: float, labels: Labels = ()) -> None:
        """It is ``value`` now."""
        self.values[labels] = value

    def lines(self) -> list[str]:
        """As Prometheus reads it."""
        return [
            f"{self.name}{_braces(zip(self.labels, labels))} {_number(value)}"
            for labels, value in self.values.items()
        ]


class Histogram(Family):
    """How many values were at most so large."""

    def __init__(
        self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        super().__init__(name, "histogram", text, labels)
        self.bounds = tuple(bounds)
        self.counts: dict[Labels, list[int]] = {}
        self.values = {}  # the sums

    def add(self, value: float = 1.0, labels: Labels = ()) -> None:
        """Note one ``value``."""
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.bounds) + 1)
        counts[bisect_left(self.bounds, value)] += 1
        self.values[labels] = self.values.get(labels, 0.0) + value

    def lines(self) -> list[str]:
        """Counts of all values up to each bound, their sum and their number."""
        found = []
        for labels, counts in self.counts.items():
            named, total = list(zip(self.labels, labels)), 0
            for bound, count in zip((*map(_number, self.bounds), "+Inf"), counts):
                total += count
                found.append(f"{self.name}_bucket{_braces([*named, ('le', bound)])} {total}")
            found.append(f"{self.name}_sum{_braces(named)} {_number(self.values[labels])}")
            found.append(f"{self.name}_count{_braces(named)} {total}")
        return found


class Measures:
    """All that a server counts."""

    def __init__(self) -> None:
        by_model = ("model",)
        self.requests = Family(
            "disttrain_requests_total", "counter", "Requests for inference, by status of HTTP.",
            ("model", "code"),
        )  # fmt: skip
        self.refused = Family(
            "disttrain_refused_total", "counter",
            "Requests that were refused before a model was known, by status of HTTP.", ("code",),
        )  # fmt: skip
        self.seconds = Histogram(
            "disttrain_request_seconds", "From a request's arrival to its answer.", SECONDS,
            by_model,
        )  # fmt: skip
        self.queued = Histogram(
            "disttrain_queue_seconds", "What requests waited for a worker.", SECONDS, by_model
        )
        self.computing = Histogram(
            "disttrain_batch_seconds", "What workers computed for a batch.", SECONDS, by_model
        )
        self.rows = Histogram("disttrain_batch_rows", "Rows of batches.", ROWS, by_model)
        self.waiting = Family("disttrain_queue_requests", "gauge", "Requests that wait now.")
        self.open = Family("disttrain_connections", "gauge", "Open connections.")
        self.held = Family("disttrain_body_bytes", "gauge", "Bytes of requests that are here.")
        self.workers = Family("disttrain_workers", "gauge", "Workers, by state.", ("state",))
        self.memory = Family(
            "disttrain_worker_private_bytes", "gauge",
            "Memory that a worker shares with no other process.", ("worker",),
        )  # fmt: skip
        self.deaths = Family("disttrain_worker_deaths_total", "counter", "Workers that died.")
        self.loads = Family(
            "disttrain_loads_total", "counter", "Loads of models, by what came of it.", ("outcome",)
        )

    def text(self) -> str:
        """As Prometheus reads it."""
        lines = []
        for family in vars(self).values():
            lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}"]
            lines += family.lines()
        return "\n".join(lines) + "\n"


def private_bytes(process: int) -> int:
    """Memory of a process that it shares with no other (0: it is not there)."""
    try:
        with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file.readlines()[1:])
    except (OSError, ValueError):
        return 0
    return sum(1024 * int(fields[f"Private_{kind}"].split()[0]) for kind in ("Clean", "Dirty"))


def _braces(labels: Iterable[tuple[str, str]]) -> str:
    pairs = [f'{name}="{_escaped(str(value))}"' for name, value in labels]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
