"""Who may connect, and as what."""

from __future__ import annotations

from tocsin.core.admission import Admission, link_cluster
from tocsin.core.session import Authenticate, Authenticated, Rejected

ADMISSION = Admission(b"secret", connections_max=2)


def asks(
    client_id: str = "me",
    username: str | None = None,
    password: bytes | None = None,
    properties: tuple[tuple[str, str], ...] = (("broker", "north-1"), ("cluster", "north")),
) -> Authenticate:
    return Authenticate(client_id=client_id, username=username, password=password, user_properties=properties)


def rejected(asked: Authenticate, connections: int = 0) -> int:
    answer = ADMISSION.decide(asked, connections)
    assert isinstance(answer, Rejected)
    return answer.reason_code


def test_a_client_is_welcome_while_there_is_room() -> None:
    assert isinstance(ADMISSION.decide(asks(), 1), Authenticated)
    assert rejected(asks(), 2) == 0x89


def test_a_link_must_know_the_secret() -> None:
    assert rejected(asks("$link/north-1", "$link", b"guess")) == 0x86
    assert rejected(asks("$link/north-1", "$link", None)) == 0x86
    assert isinstance(ADMISSION.decide(asks("$link/north-1", "$link", b"secret"), 0), Authenticated)


def test_a_link_comes_in_even_when_the_broker_is_full_of_clients() -> None:
    assert isinstance(ADMISSION.decide(asks("$link/north-1", "$link", b"secret"), 99), Authenticated)


def test_a_link_must_say_where_it_comes_from() -> None:
    assert rejected(asks("$link/north-1", "$link", b"secret", ())) == 0x86


def test_a_client_cannot_take_over_a_link_by_its_id() -> None:
    assert rejected(asks("$link/north-1")) == 0x85


def test_only_a_link_has_a_cluster_to_relay_from() -> None:
    assert link_cluster(asks("$link/north-1", "$link", b"secret")) == "north"
    assert link_cluster(asks("me", "somebody")) is None
