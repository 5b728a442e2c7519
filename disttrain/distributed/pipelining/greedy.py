"""Plans found by list scheduling: every rank does, at every moment, the best thing that it can.

Time goes in units in which a forward, a backward to the inputs and a backward to the weights take
one each. A rank that is free takes, in this order: a backward to inputs (others wait for it), a
forward of the deepest stage (as long as its memory allows), a backward to weights (nobody waits for
it). Stages admit as many micro-batches as lie between them and the end, which keeps the memory of
1F1B. As what is taken is always ready, a plan made so cannot deadlock. Pure.
"""

from __future__ import annotations

from .actions import Action, Kind, Orders

F, I, W = Kind.F, Kind.I, Kind.W


class _Progress:
    """How far all stages are, and at which time each result was there."""

    def __init__(self, rank_of: tuple[int, ...], num_micro: int) -> None:
        self.rank_of, self.num_micro = rank_of, num_micro
        self.last = len(rank_of) - 1
        self.next = {kind: [0] * len(rank_of) for kind in (F, I, W)}
        self.ended: dict[Action, int] = {}
        self.stages = [
            [s for s, r in enumerate(rank_of) if r == rank] for rank in range(max(rank_of) + 1)
        ]
        # Stages that share a rank are smaller; all in all a rank holds what 1F1B's fullest does.
        self.room = len(rank_of)

    def ready(self, stage: int, kind: Kind, now: int) -> bool:
        micro = self.next[kind][stage]
        if micro == self.num_micro:
            return False
        before = []
        if kind is F and stage:
            before.append(Action(stage - 1, F, micro))
        elif kind is I:
            before.append(Action(stage, F, micro))
            if stage < self.last:
                before.append(Action(stage + 1, I, micro))
        elif kind is W:
            before.append(Action(stage, I, micro))
        return all(self.ended.get(a, now + 1) <= now for a in before)

    def held(self, rank: int) -> int:
        """Micro-batches whose activations ``rank`` keeps."""
        return sum(self.next[F][s] - self.next[W][s] for s in self.stages[rank])

    def choose(self, rank: int, now: int) -> Action | None:
        mine = self.stages[rank]
        for s in reversed(mine):
            if self.ready(s, I, now):
                return self._take(s, I, now)
        full = self.held(rank) >= self.room
        for s in reversed(mine):
            in_flight = self.next[F][s] - self.next[I][s]
            if not full and in_flight <= self.last - s and self.ready(s, F, now):
                return self._take(s, F, now)
        for s in reversed(mine):
            if self.ready(s, W, now):
                return self._take(s, W, now)
        return None

    def _take(self, stage: int, kind: Kind, now: int) -> Action:
        action = Action(stage, kind, self.next[kind][stage])
        self.next[kind][stage] += 1
        self.ended[action] = now + 1
        return action


def list_schedule(rank_of: tuple[int, ...], num_micro: int) -> Orders:
    """What every rank does, in order."""
    progress = _Progress(rank_of, num_micro)
    ranks = range(max(rank_of) + 1)
    orders: list[list[Action]] = [[] for _ in ranks]
    left, now = 3 * num_micro * len(rank_of), 0
    while left:
        for rank in ranks:
            action = progress.choose(rank, now)
            if action is not None:
                orders[rank].append(action)
                left -= 1
        now += 1
        assert now < 100 + 20 * num_micro * len(rank_of), "list_schedule does not come to an end"
    return tuple(tuple(order) for order in orders)
