"""The Python client: ``Client`` blocks, ``AsyncClient`` is its twin for asyncio.

    with Client("mqtt://127.0.0.1:1883") as client:
        client.stream("building/4/410/temp", Room="410").publish(21.5)
        for message in client.query('Room = "410"'):
            print(message.topic, message.text)

``session`` and ``arrivals`` are the core: what a client says to a broker and when, without a socket. ``aio`` puts it
on asyncio, ``blocking`` puts that on a thread. The package is flat: programs import its modules by name.
docs/reference/client.md describes it all.
"""

from tocsin.client.accounts import Account as Account
from tocsin.client.accounts import AsyncAccounts as AsyncAccounts
from tocsin.client.accounts import change_password as change_password
from tocsin.client.accounts import register as register
from tocsin.client.accounts import remove_account as remove_account
from tocsin.client.aio import AsyncClient as AsyncClient
from tocsin.client.blocking import Client as Client
from tocsin.client.channel import Notification as Notification
from tocsin.client.message import Message as Message
from tocsin.client.options import Connection as Connection
from tocsin.client.pull import Pulled as Pulled
from tocsin.client.values import Change as Change
from tocsin.client.values import Changed as Changed
from tocsin.client.values import Joined as Joined
from tocsin.client.values import Left as Left
from tocsin.client.values import Set as Set
from tocsin.core.quality.texts import QualityInvalid as QualityInvalid
from tocsin.model.quality import Durability as Durability
from tocsin.model.quality import Liveliness as Liveliness
from tocsin.model.quality import Offer as Offer
from tocsin.model.quality import Ownership as Ownership
from tocsin.model.quality import Reliability as Reliability
from tocsin.model.quality import Request as Request
