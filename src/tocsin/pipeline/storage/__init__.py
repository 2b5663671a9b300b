"""The pipeline's storage: datasets, quarantine and results, as Delta tables, without a JVM.

``types`` and ``schema`` say how a definition becomes a table, ``files`` and ``delta`` how files and commits become
durable, ``datasets`` what can be done with a dataset and ``results`` with results; ``fitting`` judges records,
``loading`` reads files, ``upkeep`` keeps it all small, and ``frames`` shows it to Spark.
"""
