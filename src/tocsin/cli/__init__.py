"""The command line: ``main`` reads the verb, and imports only what that verb needs.

``verbs`` has one verb a module. Here is what verbs share: ``setting_options`` (settings from a file, the environment
and options), ``target`` (the broker of a client command), ``options``, ``asking`` (the pipeline, over the bus),
``auditing``, and what they print: ``answers``, ``layout``, ``listing``. May import everything but the wheels of labs
and demo.
"""
