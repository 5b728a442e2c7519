"""``torch.distributed`` and ``torch.multiprocessing``: shards and other strategies, DDP's inner
parts, processes. The launcher's parts are in ``elastic``, remote calls in ``remote``."""
