"""``disttrain board``: a page that shows runs, live and ended.

``runs`` finds them and reads their numbers, ``series`` thins long curves (pure), ``ranks`` reads
black boxes, ``recordings`` shows where two recordings part, ``page`` puts the page together,
``server`` answers a browser on this machine. What the numbers mean is said elsewhere: metrics by
who writes them, black boxes by ``disttrain.watch``.
"""
