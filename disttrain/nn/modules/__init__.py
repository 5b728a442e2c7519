"""Layers, losses and containers, a file for each kind."""
