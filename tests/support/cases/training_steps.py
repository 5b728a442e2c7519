"""Steps of training as programs write them: (model, optimizer, x, y) -> what the step returns.
Tests of captured steps run them under every wrapper."""

from __future__ import annotations

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import nn


def plain(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def dropped_late(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def dropped_last(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def zeroed(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=False)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def added(model, optimizer, x, y):
    """Gradients are never cleared."""
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss


def clipped(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss, norm


def two_forwards(model, optimizer, x, y):
    optimizer.zero_grad()
    (F.cross_entropy(model(x), y) + F.cross_entropy(model(x * 2), y)).backward()
    optimizer.step()


def two_backwards(model, optimizer, x, y):
    optimizer.zero_grad()
    first, second = F.cross_entropy(model(x), y), F.cross_entropy(model(x * 2), y)
    first.backward()
    second.backward()
    optimizer.step()


def in_autocast(model, optimizer, x, y):
    optimizer.zero_grad()
    with dt.autocast("cpu", dtype=dt.bfloat16):
        loss = F.cross_entropy(model(x).float(), y)
    loss.backward()
    optimizer.step()
    return loss


def read_norm(model, optimizer, x, y):
    """A step that the host takes or not, by a number it has read."""
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    if nn.utils.clip_grad_norm_(model.parameters(), 0.1) < 100.0:
        optimizer.step()
