"""A folder for ``sys.path``: ``import torch`` finds disttrain's stand-in there. Processes started
afresh by a program (``multiprocessing`` with the spawn method) find it by this way."""
