"""The rates that the simulated takeover takes its time from: what real processes needed, and the network around them.

``tocsin lab reaps rates`` measures them (``measuring``) and writes ``rates.json``. The file beside this module is such
a file, and says on what machine and day it was written. The two delays and the two links are no measurements: they are
the network that is simulated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import OperatorError

KEPT: Final = Path(__file__).with_name("rates.json")


class Rates(msgspec.Struct, frozen=True):
    """Seconds of processor time, unless it says otherwise; of the broker that stands in, and of the store's server."""

    client_s: float  # of the broker, for a client that comes back to its session
    client_store_s: float  # of the store
    prepared_s: float  # of the broker, for each subscription that it had prepared
    prepared_store_s: float
    created_s: float  # of the broker, for each that it creates with others, in bulk
    created_store_s: float
    single_s: float  # that pass, for one that is created by itself, before the next
    byte_s: float  # of the broker, for each byte that it delivers to a client
    # The network that is simulated: half of the round trips inside a cluster and between two, and gigabit links.
    near_s: float = 0.010
    far_s: float = 0.040
    fetched_bytes_s: float = 125e6
    delivered_bytes_s: float = 125e6


class Measured(msgspec.Struct, frozen=True):
    """Rates, with where they are from."""

    rates: Rates
    command: str
    day: str
    machine: dict[str, str | int]
    samples: dict[str, list[float]] = {}  # seconds of processor time of each run, by what ran

    @property
    def words(self) -> str:
        """One sentence for the page."""
        where = f"on a machine of {self.machine['processors']} processors"
        return f"`{self.command}` measured the rates of takeovers on {self.day}, {where}."


def read(path: Path = KEPT) -> Measured:
    """The rates of a file. Raises ``OperatorError``."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Measured)
    except OSError as error:
        raise OperatorError(
            f"{path} cannot be read: {error.strerror or error}",
            "Name a rates.json of `tocsin lab reaps rates`",
        ) from None
    except msgspec.DecodeError as error:
        raise OperatorError(
            f"{path} has no rates: {error}", "Write it with `tocsin lab reaps rates`"
        ) from None
    wrong = [
        name for name, value in msgspec.structs.asdict(found.rates).items() if not 0 <= value < float("inf")
    ]
    wrong += [each for each in ("fetched_bytes_s", "delivered_bytes_s") if not getattr(found.rates, each)]
    if wrong:
        raise OperatorError(f"{path}: {wrong[0]} is no rate", "Write it with `tocsin lab reaps rates`")
    return found


def write(measured: Measured, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=2) + b"\n")
