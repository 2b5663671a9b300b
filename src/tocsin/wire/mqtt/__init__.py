"""MQTT: ``codec`` turns bytes into packets and back, over ``mqtt50`` or ``mqtt311`` and their ``fields``.

``connect`` reads the version, ``frames`` encodes one PUBLISH for many, ``topics`` says which names and filters are
valid and match, ``reasons`` spells reason codes, ``reference`` names another server, ``websocket`` has section 6.
"""
