"""The language of datasets, feeds and channels: from a script's text to what Spark runs.

    text        a script's text → statements, by recursive descent over tokens
    tree        a SELECT's text → a tree of allowed nodes, with names and types
    functions   what our own functions mean, as expressions of Spark's SQL
    rewrite     one query for all subscriptions, and equi-joins for predicates about places and words
    checks      of the query, against what there is, and by Spark
    explaining  the plan in words

``limits`` bounds every statement, ``names`` guesses what a wrong one meant. ``pipeline.execution.compiled`` puts them
together; docs/reference/sql.md describes the language.
"""
