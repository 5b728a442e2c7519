"""A timeline as text, as papers draw it: one line per rank, time to the right. Pure."""

from __future__ import annotations

from .check import Timeline


def draw(timeline: Timeline) -> str:
    """Cells are one unit wide: kind and micro-batch ("F3"), with the stage in front where ranks
    have several ("4F3"); "-" goes on with what began before, "." waits."""
    plan = timeline.plan
    several = plan.num_stages > plan.num_ranks
    names = {
        a: str(a) if several else f"{a.kind.value}{a.micro}"
        for row in timeline.spans
        for a, _, _ in row
    }
    width = max((len(n) for n in names.values()), default=1)
    length = round(timeline.length)
    lines = []
    for rank, row in enumerate(timeline.spans):
        cells = ["."] * length
        for action, start, end in row:
            first, behind = round(start), max(round(end), round(start) + 1)
            for t in range(first, min(behind, length)):
                cells[t] = names[action] if t == first else "-"
        lines.append(f"rank {rank} | " + " ".join(c.ljust(width) for c in cells).rstrip())
    held = ", ".join(map(str, timeline.held))
    head = (
        f"{plan.name}: {plan.num_stages} stages on {plan.num_ranks} ranks, {plan.num_micro} "
        f"micro-batches; {timeline.length:g} units, {100 * timeline.bubble:.1f} % of them bubble; "
        f"activations held at most: {held}"
    )
    return "\n".join([head, *lines])
