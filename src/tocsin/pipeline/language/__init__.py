"""The language of datasets, feeds and channels: from a script's text to what Spark runs.

    script, defining     statements, by recursive descent over the tokens of ``lexer``
    query                a SELECT's text → a tree of nodes of ``vocabulary``, by sqlglot
    resolution           names and types; ``library`` gives our own functions their meaning
    per_subscription_rewrite   one query for all subscriptions; ``per_subscription_limit``: ORDER BY and LIMIT for each
    constant_lifting     constants become columns of the subscriptions, so that like channels share a plan
    spatial_join_keys    equi-joins for predicates about places and words; ``geometry``: as expressions
    checks               of the query, against what there is, and by Spark
    explaining           the plan in words

``pipeline.execution.compiled`` puts them together; docs/reference/sql.md describes the language.
"""
