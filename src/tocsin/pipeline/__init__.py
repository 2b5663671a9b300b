"""The pipeline: datasets, feeds and channels on Spark, one process; the only package that imports pyspark.

``main`` and ``assembly`` make the process, ``loop`` runs one ``tick`` after the other, ``service`` answers operators,
``status`` and ``metrics`` say how it is. Rooms: ``definitions``, ``language``, ``ingest``, ``execution``, ``storage``,
``spark``. It reads the log of feeds and the cells of backend subscriptions, and tells brokers of results by notices;
it never speaks to a broker.
"""
