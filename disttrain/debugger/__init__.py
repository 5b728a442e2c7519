"""Python's debugger in a rank of a job: ``prompt`` is what it is told and says, ``session`` the
rank's end of a terminal that the launcher hands over, ``terminal`` the end of who sits at one.

Nothing here is loaded before it is asked for.
"""
