"""Reinforcement learning: actors balance poles and report, a learner improves their policy.

    dtrun --nproc-per-node 3 scripts/examples/actor_learner.py

Each actor has poles of its own and plays them with the weights that come with the call. The learner
has one call under way at every actor, learns from whichever report comes first, and sends the
newest weights out again: actors never wait for each other.
"""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np

import disttrain as dt
from disttrain import nn
from disttrain.distributed import rpc

NEEDED = 195.0  # steps that a pole stays up, of at most 500
POLES, STEPS, GAMMA = 16, 32, 0.98
Weights = dict[str, dt.Tensor]


class CartPoles:
    """``count`` carts with a pole each (Barto, Sutton and Anderson, 1983), pushed left or right.

    States are [count, 4]: place, speed, angle, angular speed. A cart starts anew when its pole is
    12 degrees off, it has left the track, or 500 steps are over.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.states = self._begin(count)
        self.ages = np.zeros(count, int)

    def _begin(self, count: int) -> np.ndarray:
        return self.random.uniform(-0.05, 0.05, (count, 4))

    def step(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Push (right: bool [count]); which poles fell, and which reached 500 steps."""
        x, v, angle, turn = self.states.T
        force, sin, cos = np.where(right, 10.0, -10.0), np.sin(angle), np.cos(angle)
        pushed = (
            force + 0.05 * turn**2 * sin
        ) / 1.1  # the pole: 0.1 kg, half a metre to its middle
        turning = (9.8 * sin - cos * pushed) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        moving = pushed - 0.05 * turning * cos / 1.1
        self.states = np.stack(
            [x + 0.02 * v, v + 0.02 * moving, angle + 0.02 * turn, turn + 0.02 * turning], 1
        )
        self.ages += 1
        fell = (np.abs(self.states[:, 0]) > 2.4) | (np.abs(self.states[:, 2]) > np.pi / 15)
        return fell, (self.ages >= 500) & ~fell

    def renew(self, done: np.ndarray) -> None:
        self.states[done], self.ages[done] = self._begin(int(done.sum())), 0


class Policy(nn.Module):
    """Chances of pushing left and right, and how many more (discounted) steps to expect."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.action, self.value = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, states: dt.Tensor) -> tuple[dt.Tensor, dt.Tensor]:
        hidden = self.body(states)
        return self.action(hidden), self.value(hidden).squeeze(-1)


class Actor:
    """The poles of one worker."""

    def __init__(self, index: int) -> None:
        self.poles, self.policy = CartPoles(POLES, index), Policy()
        self.random = np.random.default_rng(100 + index)

    def _look(self) -> tuple[dt.Tensor, np.ndarray, np.ndarray]:
        states = dt.from_numpy(self.poles.states.astype(np.float32))
        logits, values = self.policy(states)
        return states, dt.softmax(logits, -1)[:, 1].numpy(), values.numpy()

    @dt.no_grad()
    def play(self, weights: Weights) -> dict[str, dt.Tensor]:
        """STEPS steps of every pole: states, actions, and returns [STEPS, POLES]."""
        self.policy.load_state_dict(weights)
        seen, actions, ends = [], [], []
        for _ in range(STEPS):
            states, chance, _ = self._look()
            right = self.random.random(POLES) < chance
            fell, late = self.poles.step(right)
            _, _, after = self._look()
            seen.append(states)
            actions.append(dt.from_numpy(right.astype(np.int64)))
            ends.append((fell, late, after))
            self.poles.renew(fell | late)
        later, returns = ends[-1][2], []
        for fell, late, after in reversed(ends):
            later = 1.0 + GAMMA * np.where(fell, 0.0, np.where(late, after, later))
            returns.append(dt.from_numpy(later.astype(np.float32)))
        return {
            "states": dt.stack(seen),
            "actions": dt.stack(actions),
            "returns": dt.stack(returns[::-1]),
        }


def learn(policy: Policy, optimizer: dt.optim.Optimizer, report: dict[str, dt.Tensor]) -> None:
    """A step of advantage actor-critic on what one actor saw."""
    logits, values = policy(report["states"])
    advantage = report["returns"] - values
    log_chances = nn.functional.log_softmax(logits, -1)
    chosen = log_chances.gather(-1, report["actions"].unsqueeze(-1)).squeeze(-1)
    weight = advantage.detach()
    weight = (weight - weight.mean()) / (weight.std() + 1e-6)
    entropy = -(log_chances.exp() * log_chances).sum(-1)
    loss = -(chosen * weight).mean() + 0.01 * advantage.square().mean() - 0.01 * entropy.mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


@dt.no_grad()
def score(policy: Policy, count: int = 20) -> float:
    """How many steps poles stay up under the policy's favourite actions, on average."""
    poles, lasted = CartPoles(count, 12345), np.full(count, 500)
    for step in range(500):
        logits, _ = policy(dt.from_numpy(poles.states.astype(np.float32)))
        fell, _ = poles.step(logits.argmax(-1).numpy() == 1)
        lasted[fell] = np.minimum(lasted[fell], step)
    return float(lasted.mean())


def train(updates: int, actors: int) -> float:
    """The learner: begin a call at every actor, learn from the first answer, send weights again."""
    policy = Policy()
    optimizer = dt.optim.Adam(policy.parameters(), lr=3e-3)
    players = [rpc.remote(f"actor{k}", Actor, (k,)) for k in range(actors)]
    calls = [player.rpc_async().play(policy.state_dict()) for player in players]
    for update in range(updates):
        k = next((k for k, call in enumerate(calls) if call.done()), update % actors)
        report = calls[k].wait()
        learn(policy, optimizer, report)
        calls[k] = players[k].rpc_async().play(policy.state_dict())
        if update % 100 == 99:
            print(f"update {update + 1}: {score(policy):.0f} steps", flush=True)
    for call in calls:
        call.wait()
    return score(policy)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=600, help="of the policy")
    parser.add_argument("--needed", type=float, default=NEEDED)
    options = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dt.manual_seed(0)
    rpc.init_rpc(f"actor{rank - 1}" if rank else "learner", rank=rank, world_size=world_size)
    steps = train(options.updates, world_size - 1) if rank == 0 else 500.0
    rpc.shutdown()
    if rank == 0:
        print(f"actor-learner: poles stay up for {steps:.0f} steps (needed: {options.needed:.0f})")
    return int(steps < options.needed)


if __name__ == "__main__":
    sys.exit(main())
