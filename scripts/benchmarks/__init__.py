"""Benchmarks side by side with PyTorch. Run by ``scripts/bench``."""
