"""Definitions in SQL: the catalogue of datasets and channels, the statements that change it, and the rights that they
need."""
