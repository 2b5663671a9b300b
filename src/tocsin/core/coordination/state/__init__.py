"""The coordinator's replicated state: the result of all commands up to a position.

Every coordinator and the snapshot have the same. ``state`` applies one command after the other; publishers, interest,
matching, backups and detours are its parts. Nothing here asks for the time.
"""
