"""Choosing backups: for each broker one in its own cluster and one in another (REAPS, section III).

A broker's **local backup** keeps the subscriptions that it would need ready at the backend, so those that it does
not have anyway are paid for all the time: the plan is to need few of them in sum. A **remote backup** makes them
when a whole cluster is lost, so what counts is how many the worst of them would have to make. Both numbers, and how
loaded a broker could become, are equations 1 to 7 of the paper; ``tests/unit/core/assignment/definitions.py`` has
them word for word.

    Demand  ──►  Table  ──►  Draft (two Sides)  ──►  Plan

| module | what it is |
| --- | --- |
| ``demand`` | what is asked: brokers, what they hold, rates; checked |
| ``rates`` | the rates of a demand, from what brokers have measured |
| ``outcome`` | what is answered: backups, figures, shortfalls, moves |
| ``table`` | the demand as arrays, equal columns merged; ``bits``: a small or dense one as a matrix of bits |
| ``cover`` | what each backup covers, in bits or in lists |
| ``side`` | one kind of backup: who backs whom, and what each further one would add |
| ``draft`` | both sides and the loads: what a strategy works on |
| ``paper`` | LCS and MMCS, as the paper has them |
| ``search/`` | a better plan: several first ones, each improved by single changes |
| ``planning`` | ``plan``: a strategy by name; ``replanning``: ``replan``, which moves little |
| ``costs`` | subscriptions and retrieval under quasi-active and under active replication |
| ``ranking/`` | one score for a candidate, with its terms; which standby takes a place |

Only ``demand``, ``rates``, ``outcome``, ``costs`` and ``ranking`` do without numpy: a process that plans nothing
imports those alone.
"""
