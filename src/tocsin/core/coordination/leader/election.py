"""Election: a coordinator that has the lease reads the log to its end and appends ``Elected`` there.

The append says which end was read. If the log has another by then, something of the last leader came in between:
that is read too, and the log asked again. Only its word makes a leader.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import Append, Effect, ReadLog
from tocsin.model.versions import speaks
from tocsin.ports import READ_MAX, Record
from tocsin.wire.internal.commands import Batch, Elected, Limits, decode_batch, encode_batch, encode_command


class Election:
    """One coordinator's attempt to lead."""

    def __init__(
        self,
        name: str,
        places: StoreNames,
        limits: Limits,
        request: Callable[[str], str],
        record_id: Callable[[], str],
    ) -> None:
        self._name = name
        self._places = places
        self._limits = limits
        self._request = request
        self._record_id = record_id
        self._record = Record("", b"", "")
        self._end = 0  # the log's last position, as it was read
        self.asked = ""

    @property
    def batch(self) -> Batch:
        """The record to append to the log."""
        return decode_batch(self._record.payload)

    def read(self, start: int) -> Effect:
        self.asked = self._request("read")
        return ReadLog(
            request=self.asked,
            log=self._places.commands.name,
            subject=self._places.commands_subject,
            start=start,
            limit=READ_MAX,
        )

    def open(self, state: State, previous: int, end: int) -> Effect:
        """Ask to lead, with the state of the log whose last position is ``end``."""
        own = speaks()
        data = encode_batch(
            epoch=state.epoch + 1,
            at_us=state.clock_us,
            previous=previous,
            commands=(encode_command(Elected(self._name, self._limits, max(state.level, own.oldest), own)),),
            notices=(),
        )
        self._record = Record(self._places.commands_subject, data, self._record_id())
        self._end = end
        return self.again()

    def again(self) -> Effect:
        """The same record, so that what did happen is not done again."""
        self.asked = self._request("open")
        return Append(
            request=self.asked,
            log=self._places.commands.name,
            records=(self._record,),
            expected=self._expected(),
        )

    def _expected(self) -> int | None:
        return self._end
