"""Ingest: from the log of feeds into datasets, each record once.

``ingest`` reads the log and has records fitted and landed (``pipeline.storage``), ``progress`` writes down with
compare-and-set how far each feed is, ``retention`` says what of log and results may be trimmed. No Spark.
"""
