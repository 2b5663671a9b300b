"""``tocsin VERB``: one verb a module, under its own name (``pub`` is ``publish``, ``sub`` is ``subscribe``).

A second module of a verb has the verb in front: ``explain_standby``, ``user_accounts``, ``up_board``, ``sql_prompt``.
"""
