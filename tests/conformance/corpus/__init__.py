"""A corpus of wire sequences: packets from a grammar, each broken in one way, and what becomes of each."""
