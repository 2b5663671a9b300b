"""The broker's shell: sockets, tasks and the store around the machines of ``core``, in rooms of the same names.

``main`` is the process, ``assembly`` runs one broker in it, ``parts`` makes what a broker consists of, in the order of
what they know. ``client`` is a connected client as other rooms see it, ``site`` where the broker is, ``sys_topics`` and
``metrics`` what it says of itself. Whatever decides belongs to ``core``; other processes are reached over ``store``,
``links`` and MQTT only.
"""
