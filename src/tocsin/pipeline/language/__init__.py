"""The language of datasets, feeds and channels: from a script's text to what Spark runs.

    script, defining     statements, by recursive descent over the tokens of ``lexer``
    query                a SELECT's text → a tree of nodes of ``vocabulary``, by sqlglot
    resolution           names and types; ``library`` gives our own functions their meaning
    carrying             one query for all subscriptions; ``lifting``: constants become columns; ``cutting``: LIMIT
    acceleration         equi-joins for predicates about places and words; ``geometry``: as expressions
    checking             a statement against what there is
    spark_check          Spark's word on it; the only module here that imports pyspark
    explaining           the plan in words

``pipeline.execution.compiled`` puts them together; docs/reference/sql.md describes the language.
"""
