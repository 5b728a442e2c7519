"""``dtrun submit``: write the batch script or manifest of a job, and hand it to a cluster.

``job`` what is asked for, as data; ``batch`` and ``manifest`` write it down (pure); ``sending``
hands it over; ``command`` is the command line.
"""
