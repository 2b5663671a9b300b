"""The Spark session: how it is started, and how soon.

``java`` finds Java, ``session`` makes the session from settings, ``warm_up`` runs its first jobs before a channel
needs them. ``class_archive`` is the file of classes that shortens the start; ``class_archive_build`` makes it, in a
process of its own. Knows nothing of channels.
"""
