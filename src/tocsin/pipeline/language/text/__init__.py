"""A script's text: ``lexer`` makes tokens of it, ``reader`` is a cursor over them, ``script`` and ``defining`` parse.

``statements`` are the statements that come out: frozen values whose names nobody has looked up yet. Queries inside them
are parsed in ``tree``.
"""
