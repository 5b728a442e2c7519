"""Training on uneven inputs, where PyTorch has it."""

from ..join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
