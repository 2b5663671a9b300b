"""Every error that Tocsin raises, in one tree.

    TocsinError
    ├── OperatorError              what the person who runs it asked for cannot be done; exit code 2
    │   ├── SettingError           a setting has a bad value
    │   ├── PortTaken              a listening address is in use
    │   ├── AddressElsewhere       a listening address is not one of this machine
    │   ├── DirectoryUnusable      a state directory cannot be written
    │   ├── AddressInvalid         an address of a broker cannot be read
    │   ├── ProgramMissing         a program that we start is not there
    │   ├── StateInUse             another network runs on the same state directory
    │   ├── WeightInvalid          a weight of a score cannot be used
    │   ├── SchemaInvalid          a dataset cannot be stored as it is defined
    │   ├── DatasetMissing         there is no dataset of that name
    │   ├── FileUnreadable         a file cannot be loaded into a dataset
    │   ├── FormatNewer            what is stored or said is of a version that this process cannot read
    │   └── LevelUnspoken          the network speaks no version that this process speaks
    ├── StoreError
    │   ├── StoreUnavailable       retryable: no server, no leader, or no quorum just now; nothing was written
    │   ├── OutcomeUnknown         retryable with the same message ids: the answer did not arrive
    │   ├── StoreFull              final until the operator makes room
    │   ├── Conflict               final: the expected position or revision is not the current one
    │   ├── Trimmed                final: the position asked for is no longer kept
    │   └── Refused                final: the request itself is not acceptable (too large, bad name)
    │       └── Forbidden          the store does not let this role do that
    ├── StorageUnusable            retryable: the files of datasets or results cannot be read or written just now
    ├── SourceUnusable             retryable: the source of a feed cannot be read just now
    ├── ResultsUnreachable         retryable: a broker cannot read results where they are stored
    ├── NoResponder                retryable: nobody serves that request subject
    ├── DeadlineExceeded           retryable: somebody serves it, but did not answer in time
    ├── BrokerUnreachable          retryable: no broker there, or it would not have us
    ├── ClientClosed               final: the client, or the subscription, was closed on this side
    ├── PublishRefused             final: the broker does not take that message
    ├── AccountRefused             final: the broker does not make or change that account
    ├── SubscriptionRefused        final: the broker does not grant that filter
    ├── AlreadySubscribed          final: this client has a subscription to that filter
    ├── MetadataInvalid            final: that cannot be said of a stream
    ├── QueryInvalid               final: a query over metadata cannot be read
    ├── SqlInvalid                 final: a statement of the channel language cannot be read, or is not allowed
    ├── DemandInvalid              final: backups cannot be planned for what was given
    ├── Unencodable                a packet of ours cannot be said in that version of the protocol
    └── WireError                  the peer sent bytes that break the protocol
        ├── Malformed              the bytes are not a packet
        ├── PacketTooLarge         the packet is over the limit
        ├── UnsupportedVersion     the peer speaks a version that we do not
        └── ProtocolViolation      a valid packet at the wrong moment or with forbidden content

Two axes, as class attributes: ``fault`` says whose it is, ``retryable`` whether the same call may succeed
later. Exceptions carry fields and compute their message from them: what was wrong, where, and what to do.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Fault = Literal["ours", "peer", "operator", "environment"]


class TocsinError(Exception):
    """The root. ``str(error)`` is one sentence that a person can act on."""

    fault: ClassVar[Fault] = "ours"
    retryable: ClassVar[bool] = False


def _sentences(problem: str, remedy: str) -> str:
    """Both with one full stop: words of others, such as a library's reason, may bring their own."""
    return " ".join(
        each if each.endswith(("!", "?")) else f"{each.rstrip('.')}." for each in (problem, remedy)
    )


class OperatorError(TocsinError):
    """Something the operator can put right; the command line prints it in one line and exits with 2."""

    fault = "operator"

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(_sentences(problem, remedy))


class SettingError(OperatorError):
    """A setting has a value that cannot be used."""

    def __init__(self, key: str, value: object, source: str, problem: str, remedy: str) -> None:
        self.key = key
        self.value = value
        self.source = source
        super().__init__(f"{key} = {value!r} ({source}): {problem}", remedy)


class PortTaken(OperatorError):
    """A listening address is already in use."""

    def __init__(self, host: str, port: int, wanted_by: str, setting: str) -> None:
        self.host = host
        self.port = port
        super().__init__(
            f"{wanted_by} cannot listen on {host}:{port}: the port is taken",
            f"Stop what uses it, set {setting} to a free port, or let Tocsin choose with --auto-ports",
        )


class AddressElsewhere(OperatorError):
    """A listening address is not one of this machine."""

    def __init__(self, host: str, port: int, wanted_by: str) -> None:
        self.host = host
        self.port = port
        super().__init__(
            f"{wanted_by} cannot listen on {host}:{port}: this machine does not have that address",
            "Give the machine the address, or name one that it has",
        )


class DirectoryUnusable(OperatorError):
    """A directory that must be written cannot be."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(
            f"the state directory {path} cannot be used: {reason}",
            "Give another one with --state DIR, or run without state with --ephemeral",
        )


class AddressInvalid(OperatorError):
    """An address of a broker, written as a URL or as host and port, cannot be read."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            problem,
            "Write it as host:port, such as 127.0.0.1:1883, or as mqtts://host:port, ws://… or wss://…",
        )


class ProgramMissing(OperatorError):
    """A program that Tocsin starts is not on this machine."""

    def __init__(self, program: str, remedy: str) -> None:
        self.program = program
        super().__init__(f"the program {program} was not found", remedy)


class StateInUse(OperatorError):
    """Another network already runs on this state directory."""

    def __init__(self, path: str, pid: int) -> None:
        self.path = path
        self.pid = pid
        super().__init__(
            f"the state directory {path} is in use by another network (process {pid})",
            "Stop the other network first, or give this network its own directory with --state DIR",
        )


class WeightInvalid(OperatorError):
    """The weights of a score make no sense."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, "Give each weight a number from 0 up, and at least one of them more than 0")


class SchemaInvalid(OperatorError):
    """A dataset's definition names a type, key or column that cannot be stored."""


class DatasetMissing(OperatorError):
    """There is no dataset of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"there is no dataset {name}", "Make it with CREATE DATASET, or look at SHOW DATASETS"
        )


class FileUnreadable(OperatorError):
    """A file that is to be loaded into a dataset cannot be read as what it seems to be."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}", remedy)


class FormatNewer(OperatorError):
    """A value is of a version that this process cannot read. Leave the value where it is: it is somebody's."""

    def __init__(self, what: str, version: int, newest: int, where: str = "") -> None:
        self.what = what
        self.version = version
        self.newest = newest
        self.where = where
        at = f" ({where})" if where else ""
        super().__init__(
            f"{what}{at} is of format version {version}, and this process reads up to version {newest}",
            "Upgrade this process; nothing was changed",
        )


class LevelUnspoken(OperatorError):
    """A process cannot join, because it and the network have no version of the protocol in common."""

    def __init__(self, own: tuple[int, int], network: tuple[int, int]) -> None:
        self.own = own
        self.network = network
        newer = own[0] > network[1]
        super().__init__(
            f"this process speaks {_levels(*own)} of the protocol, and the network speaks {_levels(*network)}",
            "Upgrade the other processes of the network first, one release at a time"
            if newer
            else "Upgrade this process",
        )


def _levels(oldest: int, newest: int) -> str:
    return f"level {newest}" if oldest == newest else f"levels {oldest} to {newest}"


class StorageUnusable(TocsinError):
    """The file system under the datasets, or what is in it, does not allow what is to be done."""

    fault = "environment"
    retryable = True

    def __init__(self, operation: str, reason: str) -> None:
        self.operation = operation
        self.reason = reason
        super().__init__(f"{operation}: {reason}; see that the storage is there, is ours, and has room")


class ResultsUnreachable(TocsinError):
    """Results are committed, but cannot be read from here; the pipeline can send them instead."""

    fault = "environment"
    retryable = True

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"the results at {path} cannot be read here: {reason}; ask the pipeline for them")


class StoreError(TocsinError):
    """The substrate could not do what was asked."""

    fault: ClassVar[Fault] = "environment"


class StoreUnavailable(StoreError):
    """No server, no leader or no quorum just now. Nothing was written; try again."""

    retryable = True

    def __init__(self, operation: str, reason: str) -> None:
        self.operation = operation
        super().__init__(f"{operation}: the store is not available ({reason}); try again")


class OutcomeUnknown(StoreError):
    """The request was sent and no answer came. Repeat it with the same message ids: it is then applied once."""

    retryable = True

    def __init__(self, operation: str, waited_s: float) -> None:
        self.operation = operation
        self.waited_s = waited_s
        super().__init__(
            f"{operation}: no answer from the store within {waited_s:g} s; it may or may not have happened, "
            "so repeat it with the same message ids"
        )


class StoreFull(StoreError):
    """No room. Acknowledged data are safe; refused writes were not made."""

    def __init__(self, operation: str, reason: str) -> None:
        self.operation = operation
        super().__init__(f"{operation}: the store has no room ({reason}); free disk space or raise its limit")


class Conflict(StoreError):
    """Somebody else wrote in between: the expected position or revision is not the current one."""

    def __init__(self, operation: str, expected: int, actual: int | None) -> None:
        self.operation = operation
        self.expected = expected
        self.actual = actual
        now = "another" if actual is None else str(actual)
        super().__init__(f"{operation}: expected {expected}, found {now}; read again before you retry")


class Trimmed(StoreError):
    """The position asked for is older than the oldest that is kept."""

    def __init__(self, log: str, position: int, oldest: int) -> None:
        self.log = log
        self.position = position
        self.oldest = oldest
        super().__init__(f"log {log}: position {position} is no longer kept; the oldest is {oldest}")


class Refused(StoreError):
    """The request itself is not acceptable, now or later."""

    fault = "ours"

    def __init__(self, operation: str, reason: str) -> None:
        self.operation = operation
        super().__init__(f"{operation}: refused: {reason}")


class Forbidden(Refused):
    """The store does not let this process do that: it is not what its role does."""

    def __init__(self, role: str, action: str, subject: str) -> None:
        self.role = role
        self.action = action
        self.subject = subject
        who = f"the role {role}" if role else "this log-in"
        super().__init__(
            f"{action} {subject}", f"the store does not let {who} do that; see `tocsin store accounts`"
        )


class SourceUnusable(TocsinError):
    """The source of a feed cannot be read just now."""

    fault = "environment"
    retryable = True

    def __init__(self, source: str, problem: str, remedy: str) -> None:
        self.source = source
        self.problem = problem
        self.remedy = remedy
        super().__init__(_sentences(f"{source}: {problem}", remedy))


class NoResponder(TocsinError):
    """Nobody serves that request subject just now."""

    fault = "environment"
    retryable = True

    def __init__(self, subject: str) -> None:
        self.subject = subject
        super().__init__(f"nobody answers requests on {subject} just now; try again")


class DeadlineExceeded(TocsinError):
    """The other side did not answer in time."""

    fault = "peer"
    retryable = True

    def __init__(self, subject: str, deadline_s: float) -> None:
        self.subject = subject
        self.deadline_s = deadline_s
        super().__init__(f"no answer on {subject} within {deadline_s:g} s")


class BrokerUnreachable(TocsinError):
    """A client has no connection to its broker."""

    fault = "environment"
    retryable = True

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(f"no connection to the broker at {host}:{port}: {reason}; is it running there?")


class ClientClosed(TocsinError):
    """The call needs a client, or a subscription, that was closed here."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} is closed; make a new one")


class PublishRefused(TocsinError):
    """The broker does not take a message."""

    fault = "peer"

    def __init__(self, topic: str, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(f"the broker refused a message on {topic!r}: {reason}")


class AccountRefused(TocsinError):
    """The broker does not make, change or remove an account."""

    fault = "peer"

    def __init__(self, name: str, reason: str, code: int) -> None:
        self.name = name
        self.reason = reason
        self.code = code  # as MQTT's reason codes: 0x87 not authorized, 0x9F too fast …
        super().__init__(f"the broker refused the request about the account {name!r}: {reason}")


class AlreadySubscribed(TocsinError):
    """A client has at most one subscription to a filter."""

    def __init__(self, topic_filter: str) -> None:
        self.topic_filter = topic_filter
        super().__init__(
            f"this client has a subscription to {topic_filter!r} already; read or close that subscription, "
            "or use a second client"
        )


class MetadataInvalid(TocsinError):
    """A change of a stream's metadata that cannot be made."""

    def __init__(self, topic: str, problem: str) -> None:
        self.topic = topic
        self.problem = problem
        super().__init__(f"metadata of {topic!r}: {problem}")


class SubscriptionRefused(TocsinError):
    """The broker does not grant a subscription."""

    fault = "peer"

    def __init__(self, topic_filter: str, reason: str) -> None:
        self.topic_filter = topic_filter
        self.reason = reason
        super().__init__(f"the broker refused the subscription to {topic_filter!r}: {reason}")


class QueryInvalid(TocsinError):
    """A query over metadata that cannot be read, or goes beyond a limit.

    ``at`` is the character (from 0) that ``problem`` speaks about; ``str()`` shows the line, with a mark below it.
    """

    fault = "peer"
    _SHOWN = 60  # characters of the text that are shown before the mark, and after it

    def __init__(self, text: str, at: int, problem: str) -> None:
        self.text = text
        self.at = at
        self.problem = problem
        before, after = text[max(at - self._SHOWN, 0) : at], text[at : at + self._SHOWN]
        shown = "".join(character if character.isprintable() else " " for character in before + after)
        super().__init__(f"query, character {at + 1}: {problem}\n    {shown}\n    {' ' * len(before)}^")


class SqlInvalid(TocsinError):
    """A statement that cannot be read, that speaks of what is not there, or that is not allowed.

    ``at`` is the character (from 0) of ``text`` that ``problem`` speaks about; ``line`` and ``column`` (from 1) say the
    same to a person. ``remedy`` says what to write instead. ``str()`` shows the line, with a mark below it.
    """

    fault = "peer"
    _SHOWN = 60  # characters of the line that are shown before the mark, and after it

    def __init__(self, text: str, at: int, problem: str, remedy: str) -> None:
        at = max(0, min(at, len(text)))
        start = text.rfind("\n", 0, at) + 1
        self.text = text
        self.at = at
        self.line = text.count("\n", 0, at) + 1
        self.column = at - start + 1
        self.problem = problem
        self.remedy = remedy
        before = text[max(start, at - self._SHOWN) : at]
        after = text[at : at + self._SHOWN].split("\n", 1)[0]
        shown = "".join(character if character.isprintable() else " " for character in before + after)
        super().__init__(
            f"line {self.line}, column {self.column}: {problem}; {remedy}\n    {shown}\n    {' ' * len(before)}^"
        )


class DemandInvalid(TocsinError):
    """The input of a plan of backups makes no sense, or is beyond its bounds."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"no backups can be planned: {problem}; {remedy}")


class Unencodable(TocsinError):
    """A packet of ours holds what its version of the protocol cannot say (a string too long, a bad packet id)."""

    def __init__(self, packet: str, version: int, problem: str) -> None:
        self.packet = packet
        self.version = version
        self.problem = problem
        super().__init__(f"{packet} cannot be encoded for MQTT protocol level {version}: {problem}")


class WireError(TocsinError):
    """A peer broke the protocol. ``reason_code`` is the MQTT 5 reason to tell it."""

    fault = "peer"
    reason_code: int = 0x80

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class Malformed(WireError):
    """The bytes are not a packet of the protocol."""

    reason_code = 0x81


class PacketTooLarge(WireError):
    """The packet is larger than this connection may send."""

    reason_code = 0x95

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"a packet of {size} bytes is over the limit of {limit}")


class UnsupportedVersion(WireError):
    """The CONNECT names a protocol or level that is not spoken here."""

    reason_code = 0x84

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        self.level = level
        super().__init__(
            f"protocol {name!r} level {level} is not supported; use MQTT 5, 3.1.1 or 3.1 (levels 5, 4, 3)"
        )


class ProtocolViolation(WireError):
    """A packet that is well formed, but not allowed here."""

    def __init__(self, problem: str, reason_code: int = 0x82) -> None:
        self.reason_code = reason_code
        super().__init__(problem)
