"""Tocsin's own scenarios, one package each; one that registers with ``@scenario`` is found by being here.

A scenario makes a world: who takes part, their traffic, the faults that may come, and the promises that are checked.
``survival`` and its forms run whole processes as they ship, ``counter`` shows how to write one, the others run the
machines of one subject. A scenario may import everything that is shipped; nothing that is shipped imports one.
"""
