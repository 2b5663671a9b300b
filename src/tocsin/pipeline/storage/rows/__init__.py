"""Rows: ``schema`` and ``types`` are what a definition's columns become, ``values`` reads one value, ``fitting`` a row.

``user_files`` and ``loading`` bring files as records, ``keyed`` says which of the rows with one key count. Arrow, no
files of a table, no Spark.
"""
