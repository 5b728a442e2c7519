"""Parameters that were frozen when the module was wrapped, and train now: nobody averages them.

PyTorch goes on without a word, and so the replicas part; here it is said, once for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...core.tensor import Tensor
from ...trace import warn
from .reducer.messages import listed

Named = tuple[str, Tensor]


class Frozen:
    """Those that are still frozen. ``thawed`` is told of those that no longer are, by their names
    and as tensors, at the same forward on every rank that trains the same ones."""

    def __init__(
        self, named: Iterable[Named], where: str, thawed: Callable[[Sequence[Named]], None]
    ) -> None:
        self.named, self._where, self._thawed = list(named), where, thawed

    def look(self) -> None:
        """Before a forward that synchronises."""
        now = [(n, p) for n, p in self.named if p.requires_grad]
        if not now:
            return
        self.named = [(n, p) for n, p in self.named if not p.requires_grad]
        self._thawed(now)
        warn(
            f"{self._where}: {listed([n for n, _ in now])} did not require grad when the module "
            "was wrapped and does now; its gradients are not averaged, so every rank trains its "
            "own. Wrap the module again after requires_grad_(True), on every rank, or wrap it "
            "first and freeze afterwards",
        )
