"""``torch.nn`` and ``torch.optim``: layers by PyTorch's files, ways of computing attention."""
