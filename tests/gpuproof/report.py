"""The report: Markdown of what the parts told. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .journal import number_text

SHOWN = 40  # failures and cases that could not run, of each part; all are in the JSON
TRACES = 12  # of each part


def markdown(found: dict[str, Any]) -> str:
    """``found``: "device", "platform", "command", "python", "revision", "seconds", and "parts" as
    ``runner.as_data`` gives them."""
    parts = found["parts"]
    lines = [f"# {found['device']}", ""]
    if found["platform"] != "cuda":
        lines += [
            "**This is a rehearsal on a stand-in for a device, on the host's memory: it shows that "
            "the proof itself runs, and says nothing of any GPU. Its times mean nothing.**", "",
        ]  # fmt: skip
    lines += [f"`{found['command']}` at {found['revision']}, Python {found['python']}, "
              f"{found['seconds']:.0f} s", ""]  # fmt: skip
    lines += [
        "| part | | held | failed | not run | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for part in parts:
        bad = [c for c in part["checks"] if not c["ok"]]
        held = len(part["checks"]) - len(bad)
        state = f"**{part['state']}**" if part["state"] == "FAILED" else part["state"]
        lines.append(f"| {part['title']} | {state} | {held} | {len(bad)} | {len(part['skips'])} | "
                     f"{part['seconds']:.0f} |")  # fmt: skip
    for part in parts:
        lines += _part(part)
    return "\n".join(lines).rstrip() + "\n"


def _part(part: dict[str, Any]) -> list[str]:
    lines = ["", f"## {part['title']}", ""]
    lines += [f"* {_cell(note)}" for note in part["notes"]]
    lines += [f"* **A process {_cell(text)}.**" for text in part["broken"]]
    lines += _numbers(part["numbers"])
    bad = [c for c in part["checks"] if not c["ok"]]
    if bad:
        lines += ["", "Failed:", ""]
        lines += _failures(bad)
    if part["skips"]:
        lines += ["", "Not run:", ""]
        by: dict[str, list[str]] = {}
        for skip in part["skips"]:
            by.setdefault(skip["why"], []).append(skip["name"])
        for why, names in list(by.items())[:SHOWN]:
            shown = ", ".join(f"`{n}`" for n in names[:6])
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            lines.append(f"* {shown}{more}: {_cell(why)}")
    told = [c for c in part["checks"] if c["ok"] and c.get("detail")]
    if told:
        lines += ["", "| held | |", "| --- | --- |"]
        lines += [f"| {_cell(c['name'])} | {_cell(c['detail'])} |" for c in told[:SHOWN]]
    for tail in part["tails"]:
        lines += ["", "What a process that broke off said last:", "", "```", tail, "```"]
    return lines if len(lines) > 3 else [*lines, "Nothing to tell."]


def _failures(bad: Sequence[dict[str, Any]]) -> list[str]:
    """What failed alike in one place is one line; the first of each with its whole trace."""
    by: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for check in bad:
        by.setdefault((check["detail"], _place(check.get("trace", ""))), []).append(check)
    lines = []
    for (detail, place), checks in list(by.items())[:SHOWN]:
        names = ", ".join(f"`{c['name']}`" for c in checks[:6])
        more = f" and {len(checks) - 6} more" if len(checks) > 6 else ""
        lines.append(f"* {names}{more}: {_cell(detail)}{f' ({place})' if place else ''}")
    lines += [f"* and {len(by) - SHOWN} other failures"] if len(by) > SHOWN else []
    traces = [(checks[0]["name"], checks[0]["trace"]) for checks in by.values()
              if checks[0].get("trace")]  # fmt: skip
    for name, trace in traces[:TRACES]:
        lines += ["", f"`{name}`:", "", "```", trace.rstrip(), "```"]
    return lines


def _place(trace: str) -> str:
    """The innermost line of this project's in it."""
    found = re.findall(r'/((?:disttrain|tests|scripts)/[^"]*)", line (\d+)', trace)
    return ":".join(found[-1]) if found else ""


def _numbers(numbers: Sequence[dict[str, Any]]) -> list[str]:
    if not numbers:
        return []
    columns = list(dict.fromkeys(name for n in numbers for name in n.get("beside", {})))
    head = ["measured", "disttrain", *columns, *(["ratio"] if columns else []), "bar"]
    lines = ["", "| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for n in numbers:
        beside = n.get("beside", {})
        cells = [n["name"], f"{number_text(n['value'])} {n['unit']}"]
        cells += [number_text(beside[c]) if c in beside else "" for c in columns]
        if columns:
            cells.append(ratios(n))
        cells.append(n.get("bar", ""))
        lines.append("| " + " | ".join(_cell(c) for c in cells) + " |")
    return lines


def ratios(n: dict[str, Any]) -> str:
    """Ours over theirs, of each."""
    return ", ".join(
        f"{n['value'] / theirs:.2f}x" for theirs in n.get("beside", {}).values() if theirs
    )


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
