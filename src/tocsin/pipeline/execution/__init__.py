"""Channels on Spark: one job for all subscriptions of channels of one shape.

``compiled`` makes a channel's plan, ``engine`` and ``runs`` run those that are due, ``subscriptions`` follows the cells
of brokers, ``subscription_tables`` and ``views`` show them to Spark, ``writer`` writes the results of a run, and
``failures`` says whose fault a failure is. What is committed, and when, is decided in ``pipeline.tick``.
"""
