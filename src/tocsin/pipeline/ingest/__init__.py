"""Ingest: from the log of feeds into datasets, how far that is, and what may be trimmed."""
