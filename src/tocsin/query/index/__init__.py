"""Which standing queries a stream satisfies, and which streams a query does, without asking each: ``index``.

``atoms`` is all that an index knows of an expression; ``tree`` keeps queries by what covers them, ``postings`` streams
by key and value, ``watch`` the members that a change of a value can concern. ``tokens``, ``intervals``, ``ordered``
and ``bag`` are their tables.
"""
