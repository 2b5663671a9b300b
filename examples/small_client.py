#!/usr/bin/env python3
"""A whole client of a Tocsin network in one file, on the standard library alone.

    small_client.py subscribe host:1883 'Location/Room = "410"'      every stream that satisfies a query, as it comes
    small_client.py publish   host:1883 sensors/7 21.5 Room=410      one value of a stream, with its metadata

It speaks MQTT 5 at QoS 1. It tells the broker that its home is the first server; the broker answers with its backups,
and names others when the plan changes. When the broker is lost the client goes on at the local backup, then at the
remote one, with its session: nothing that was acknowledged is lost. It follows redirects, also the one home.

Copy it, or write it again in another language. docs/reference/mqtt.md has the properties that it uses.
"""

import socket
import struct
import sys
import time

# ── base: packets of MQTT 5 ──
CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK = 1, 2, 3, 4, 8, 9
PINGREQ, DISCONNECT = 12, 14
SIZES = {1: (1, 23, 25, 36, 37, 40, 41, 42), 2: (19, 33, 34, 35), 4: (2, 17, 24, 39)}
FIXED = {kind: size for size, kinds in SIZES.items() for kind in kinds}  # properties of a fixed size
SESSION_EXPIRY, SERVER_REFERENCE, USER_PROPERTY, SUBSCRIPTION_ID = 17, 28, 38, 11


def number(value):
    """A variable byte integer."""
    head = bytearray()
    while True:
        value, low = value >> 7, value & 127
        head.append(low | (128 if value else 0))
        if not value:
            return bytes(head)


def text(value):
    data = value.encode()
    return struct.pack("!H", len(data)) + data


def pairs(*properties):
    return b"".join(bytes((USER_PROPERTY,)) + text(name) + text(value) for name, value in properties)


class Reader:
    """Reads the fields of one packet."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self, size):
        return int.from_bytes(self.take(size), "big")

    def text(self):
        return self.take(self.integer(2)).decode()

    def number(self):
        value = shift = 0
        while True:
            byte = self.integer(1)
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    def properties(self):
        found = []
        end = self.at + 1 if self.at >= len(self.data) else self.number() + self.at
        while self.at < min(end, len(self.data)):
            kind = self.integer(1)
            if kind == USER_PROPERTY:
                found.append((self.text(), self.text()))
            elif kind in FIXED:
                self.take(FIXED[kind])
            elif kind == SUBSCRIPTION_ID:
                self.number()
            else:
                found.append((kind, self.text()))
        return found


class Wire:
    """One connection: whole packets in and out."""

    def __init__(self, address, deadline_s):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), deadline_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def send(self, kind, body=b"", flags=0):
        self.socket.sendall(bytes((kind << 4 | flags,)) + number(len(body)) + body)

    def receive(self, deadline_s):
        """The next packet as (kind, flags, Reader); None if there is none in time."""
        end = time.monotonic() + deadline_s
        while (packet := self._next()) is None:
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                return None
            if not data:
                raise ConnectionError("the broker closed the connection")
            self.buffer += data
        return packet

    def _next(self):
        for size in range(2, min(5, len(self.buffer)) + 1):
            if self.buffer[size - 1] < 128:
                length = Reader(self.buffer[1:size]).number()
                if len(self.buffer) < size + length:
                    return None
                packet, self.buffer = self.buffer[: size + length], self.buffer[size + length :]
                return packet[0] >> 4, packet[0] & 15, Reader(packet[size:])
        return None


# ── failover: where to go, and back home ──
USE_ANOTHER_SERVER, SERVER_MOVED = 0x9C, 0x9D
KEEP_ALIVE_S, HURRY_S, DIAL_S, REDIRECTS_MAX = 10, 3, 10, 3


class Redirected(Exception):
    """The broker sends us to another one."""


class Client:
    """Keeps a connection to the network, whichever brokers are lost."""

    def __init__(self, servers, name, expiry_s=3600):
        self.servers, self.name, self.expiry_s = list(servers), name, expiry_s
        self.home, self.told = self.servers[0], []  # home: that broker's id, once it is known
        self.filters, self.unacknowledged, self.last_id = {}, {}, 0
        self.wire, self.heard_s, self.silent = None, 0.0, False

    def connect(self):
        """Dial until a broker accepts us: the home, then where our last broker told us to go, then the others."""
        wait_s = 0.1
        while True:
            places = [self.servers[0], *self.told, *self.servers[1:]]
            for place in places[1:] + places[:1] if self.silent else places:
                try:
                    return self._dial(place)
                except (OSError, ValueError):
                    continue
            time.sleep(wait_s)
            wait_s = min(10, wait_s * 2)

    def _dial(self, place, redirects=REDIRECTS_MAX):
        self.wire = Wire(place, HURRY_S)
        said = pairs(("home.v", "1"), ("home", self.home))
        said += struct.pack("!BI", SESSION_EXPIRY, self.expiry_s)
        body = (
            text("MQTT")
            + struct.pack("!BBH", 5, 0, KEEP_ALIVE_S)
            + number(len(said))
            + said
            + text(self.name)
        )
        self.wire.send(CONNECT, body)
        kind, _, packet = self.wire.receive(DIAL_S) or (0, 0, None)
        if kind != CONNACK:
            raise ConnectionError("the broker did not answer")
        present, code = packet.integer(1), packet.integer(1)
        found = packet.properties()
        if code in (USE_ANOTHER_SERVER, SERVER_MOVED) and redirects:
            return self._dial(dict(found)[SERVER_REFERENCE], redirects - 1)
        if code:
            raise ConnectionError(f"refused: {code:#04x}")
        self.told = [value for name, value in found if name == "server"]
        if place == self.servers[0]:
            self.home = dict(found).get("broker", self.home)
        self.heard_s, self.silent = time.monotonic(), False
        for topic_filter in () if present else self.filters:
            self._ask(topic_filter)
        for body in self.unacknowledged.values():
            self.wire.send(PUBLISH, body, 2 | 8)  # QoS 1, again

    def handle(self, deadline_s):
        """Wait for what comes; whatever breaks, be connected again afterwards."""
        try:
            packet = self.wire.receive(deadline_s)
            if packet is not None:
                self.heard_s = time.monotonic()
                return self._heard(*packet)
            quiet_s = time.monotonic() - self.heard_s
            self.silent = quiet_s > KEEP_ALIVE_S  # frozen, perhaps: it is not where we begin again
            if self.silent:
                raise ConnectionError("the broker no longer answers")
            if quiet_s > KEEP_ALIVE_S / 2:
                self.wire.send(PINGREQ)
        except Redirected as there:
            try:
                self._dial(str(there))
            except OSError:
                self.connect()
        except OSError:
            self.connect()

    def _heard(self, kind, flags, packet):
        if kind == PUBLISH:
            topic, qos = packet.text(), flags >> 1 & 3
            packet_id = packet.integer(2) if qos else 0
            packet.properties()
            payload = packet.data[packet.at :]
            if topic == "$home/servers":
                self.told = payload.decode().split()
            else:
                self.received(topic, payload)
            if qos:
                self.wire.send(PUBACK, struct.pack("!H", packet_id))  # once it was dealt with
        elif kind == PUBACK:
            self.unacknowledged.pop(packet.integer(2), None)
        elif kind == SUBACK:
            self._granted(packet)
        elif kind == DISCONNECT:
            code = packet.integer(1)
            found = dict(packet.properties())
            if code in (USE_ANOTHER_SERVER, SERVER_MOVED) and SERVER_REFERENCE in found:
                raise Redirected(found[SERVER_REFERENCE])
            raise ConnectionError(f"sent away: {code:#04x}")

    def _new_id(self):
        self.last_id = self.last_id % 65535 + 1
        return self.last_id

    def received(self, topic, payload):
        """A message has come; overridden by a subscriber."""

    # ── subscriber: filters and queries ──
    def subscribe(self, topic_filter):
        self.filters[topic_filter] = None
        self._ask(topic_filter)
        while self.filters[topic_filter] is not True:
            self.handle(1)

    def query(self, predicate):
        """Every stream whose metadata satisfies a predicate, now and later."""
        written = predicate.replace("%", "%25").replace("+", "%2B").replace("#", "%23")
        self.subscribe("$query/" + written)

    def _ask(self, topic_filter):
        self.filters[topic_filter] = packet_id = self._new_id()
        self.wire.send(SUBSCRIBE, struct.pack("!HB", packet_id, 0) + text(topic_filter) + b"\1", 2)

    def _granted(self, packet):
        packet_id = packet.integer(2)
        packet.properties()
        code = packet.integer(1)
        for topic_filter, asked in self.filters.items():
            if asked == packet_id:
                self.filters[topic_filter] = True
                if code > 2:
                    raise SystemExit(f"{topic_filter}: refused with {code:#04x}")

    # ── publisher: values of streams, with metadata ──
    def publish(self, topic, payload, **metadata):
        """Returns once the message is durable."""
        packet_id = self._new_id()
        said = pairs(*((f"meta.{key}", str(value)) for key, value in metadata.items()))
        body = text(topic) + struct.pack("!H", packet_id) + number(len(said)) + said + payload.encode()
        self.unacknowledged[packet_id] = body
        self.wire.send(PUBLISH, body, 2)
        while packet_id in self.unacknowledged:
            self.handle(1)


# ── program ──
def main(verb, servers, what, *words):
    client = Client(servers.split(","), f"small-{verb}")
    client.received = lambda topic, payload: print(topic, payload.decode(errors="replace"), flush=True)
    client.connect()
    if verb == "subscribe":
        client.query(what)
        print("ready", file=sys.stderr, flush=True)
        while True:
            client.handle(KEEP_ALIVE_S / 4)
    client.publish(what, words[0], **dict(word.split("=", 1) for word in words[1:]))


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("subscribe", "publish"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
