"""A query as a tree: ``query`` parses a SELECT with sqlglot and lets in only the nodes of ``vocabulary``.

``resolution`` finds its datasets, channels, columns and types; ``trees`` answers questions about one block at a time.
"""
