"""The demonstration, ``tocsin demo``: people in a city are told of emergencies near them while brokers are killed.

| module | what it is |
| --- | --- |
| ``command`` | the verb ``tocsin demo`` |
| ``screen``, ``scenery`` | what it shows on a terminal |
| ``scene`` | a network, a city with subscribers, brokers that fail, and the account; on real processes |
| ``city``, ``traces`` | movements and emergencies: a city of ours, and files in the format of the ONE simulator |
| ``network`` | a network on free ports in a temporary directory, supervised as ``tocsin up`` does it |
| ``worker`` | a load generator in a process of its own: its job, its news, its end |

``tocsin_labs`` measures on the scene and shares ``network`` and ``worker``.
"""
