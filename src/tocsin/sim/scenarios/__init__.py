"""Tocsin's own scenarios, one a module. A module that registers with ``@scenario`` is found by being here."""
