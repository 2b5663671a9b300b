"""The big-data path: datasets, feeds, channels and their executions on Spark. The only package that imports pyspark."""
