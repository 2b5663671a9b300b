"""Copies of a broker's state at its backups: ``primary`` sends them, ``backup`` keeps them."""
