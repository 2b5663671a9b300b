"""The Python client: ``Client`` blocks, ``AsyncClient`` is its twin for asyncio.

    with Client("mqtt://127.0.0.1:1883") as client:
        client.stream("building/4/410/temp", Room="410").publish(21.5)
        for message in client.query('Room = "410"'):
            print(message.topic, message.text)

``session`` and ``arrivals`` are the core: what a client says to a broker and when, without a socket. ``aio`` puts it
on asyncio, ``blocking`` puts that on a thread. The package is flat: programs import its modules by name.
docs/reference/client.md describes it all.
"""

from tocsin.client.accounts import Account, AsyncAccounts, change_password, register, remove_account
from tocsin.client.aio import AsyncClient
from tocsin.client.blocking import Client
from tocsin.client.channel import Notification
from tocsin.client.message import Message
from tocsin.client.options import Connection
from tocsin.client.pull import Pulled
from tocsin.client.values import Change, Changed, Joined, Left, Set
from tocsin.core.quality.texts import QualityInvalid
from tocsin.model.quality import EVERYTHING, Durability, Liveliness, Offer, Ownership, Reliability, Request

__all__ = [
    "EVERYTHING",
    "Account",
    "AsyncAccounts",
    "AsyncClient",
    "Change",
    "Changed",
    "Client",
    "Connection",
    "Durability",
    "Joined",
    "Left",
    "Liveliness",
    "Message",
    "Notification",
    "Offer",
    "Ownership",
    "Pulled",
    "QualityInvalid",
    "Reliability",
    "Request",
    "Set",
    "change_password",
    "register",
    "remove_account",
]
