"""Layers whose weights are integers, and what trains them: each kind in a module."""
