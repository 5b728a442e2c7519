"""What others bring to a rank that is recorded, in one signed file, from which it is replayed.

``keeping`` notes what transports, stores and messages of RPC bring, as frames of the log
(``frames``); ``opening`` begins and ends it. ``key`` has what logs are signed with,
``surroundings`` says on what a rank ran.
"""
