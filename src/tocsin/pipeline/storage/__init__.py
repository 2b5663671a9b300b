"""The pipeline's storage: datasets, quarantine and results, as Delta tables, without a JVM.

``rows`` makes rows of records and files; ``tables`` keeps Delta tables durable and small. At the root is what is
stored: ``datasets``, the ``results`` of ticks, ``landing`` of fitted records, the ``parts`` that Spark's tasks write;
``frames`` shows them to Spark, and is the only module here that knows it.
"""
