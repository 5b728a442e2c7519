"""Which groups this rank is in: how they are made, named, kept and left.

``state`` has the default group, ``new_group`` the others; ``process_group`` is what programs hold;
``stores`` are where they meet, ``backend`` the names of transports, ``custom_backend`` a program's
own.
"""
