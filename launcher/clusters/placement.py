"""What an environment answers: where am I, how many are we, who is first, which one am I, how do I
end. Data; knows no environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The place of this node in its job. A node is one agent: one ``dtrun``.

    ``cluster``: where am I. ``num_nodes``: how many are we. ``first``: where do we meet, as
    host:port; "" where only the command line can say. ``node_rank``: which one am I; None where
    the nodes agree on that. ``job``: the job's name, alike on all nodes, and no secret. ``ends``:
    how do I end, for people.

    ``label``: what the job's token is derived from, with the user's key; "" where it comes from
    elsewhere (``tokens``). ``name_timeout``: for how many seconds the first one's name may not be
    known yet. ``lasting``: what this job keeps when the environment starts it anew, and no other
    one has; "" where nothing does. ``token_file``: where the environment has put the token.
    ``doubt``: why these answers cannot be meant unless the command line says how many nodes there
    are. ``hint``: what is said to people, who may have meant something else.
    """

    cluster: str = "local"
    num_nodes: int = 1
    first: str = ""
    node_rank: int | None = 0
    job: str = ""
    ends: str = "by the signals that this process gets"
    label: str = ""
    name_timeout: float = 0.0
    lasting: str = ""
    token_file: str = ""
    doubt: str = ""
    hint: str = ""

    def answers(self) -> dict[str, str | int]:
        """The options that this place answers, by the names of their values; what the command line
        says comes before them. One node needs none."""
        if self.num_nodes == 1:
            return {}
        found: dict[str, str | int] = {"nnodes": str(self.num_nodes)}
        if self.first:
            found["rdzv_endpoint"] = self.first
        if self.job:
            found["rdzv_id"] = self.job
        if self.node_rank is not None:
            found["node_rank"] = self.node_rank
        return found

    def describe(self) -> str:
        """One line for people."""
        where = f", meeting at {self.first}" if self.first else ""
        return (
            f"cluster: {self.cluster}, node {self.node_rank} of {self.num_nodes}{where}; "
            f"ends {self.ends}"
        )


def number(env: Mapping[str, str], name: str) -> int | None:
    """The number that a variable holds; None where it holds none."""
    text = env.get(name, "")
    return int(text) if text.isdigit() else None


Reach = Callable[[str], str]  # a node's name -> a name or address that can be connected to
