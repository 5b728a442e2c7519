"""``dtrun --simulate N train.py``: a script's ranks as threads of one process, on a simulated
cluster. ``job`` runs it, ``explore`` tries many schedules and faults; ``command`` asks
one of them."""
