"""How good plans of backups are, and how long they take: ``run`` measures, over the networks of ``networks``."""

from bench.assignment.run import main

__all__ = [
    "main",
]
