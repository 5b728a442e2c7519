"""The reusable part of ``scripts/train.py``: settings, data, models, the loop, checkpoints."""
