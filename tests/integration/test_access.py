"""TLS, users and rules, with the clients that people use, on processes started by ``tocsin up``."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.integration.running import DEADLINE_S, READY_DEADLINE_S, Heard, until, up

RULES = """
[[rules]]
deny = "both"
topics = ["plant/secret/#"]

[[rules]]
allow = "publish"
topics = ["plant/%u/#"]
users = ["*"]

[[rules]]
allow = "subscribe"
topics = ["plant/#"]
users = ["watcher"]

[[rules]]
allow = "both"
topics = ["machines/%u/#"]
users = ["press-1"]
"""


class Plant:
    """A network of two brokers with TLS, users and rules, and mosquitto's programs at its doors."""

    def __init__(self, directory: Path, program: Callable[[str, str], str]) -> None:
        self._directory = directory
        self._sub = program("mosquitto_sub", "mosquitto-clients")
        self._pub = program("mosquitto_pub", "mosquitto-clients")
        self.authority = Authority(program("openssl", "openssl"), directory)
        self.brokers: dict[str, dict[str, Any]] = {}
        (directory / "rules.toml").write_text(RULES)
        for name in ("press", "watcher", "secret"):
            self.user("add", name, "--password-stdin", password=f"{name}'s password")

    def user(self, *arguments: str, password: str = "") -> None:
        command = [sys.executable, "-m", "tocsin", "user", *arguments]
        command += ["--file", str(self._directory / "users")]
        subprocess.run(command, input=password, text=True, check=True, timeout=DEADLINE_S)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        made = self.authority.sign("localhost")
        config = self._directory / "tocsin.toml"
        config.write_text(f"""
            [tls]
            certificate = "{made.certificate}"
            key = "{made.key}"
            client_ca = "{self.authority.certificate}"
            client_certificates = "optional"
            [access]
            users = "{self._directory / "users"}"
            rules = "{self._directory / "rules.toml"}"
            anonymous = "never"
            [[brokers]]
            id = "a"
            cluster = "c"
            tls_port = 0
            [[brokers]]
            id = "b"
            cluster = "c"
            tls_port = 0
        """)
        with up("-c", str(config)) as line:
            self.brokers = {broker["id"]: broker for broker in line["brokers"]}
            yield

    def _at(self, broker: str, user: str, *, tls: bool = True) -> list[str]:
        where = ["-h", "127.0.0.1", "-p", str(self.brokers[broker]["tls_port" if tls else "port"])]
        trust = ["--cafile", str(self.authority.certificate)] if tls else []
        return [*where, *trust, *(["-u", user, "-P", f"{user}'s password"] if user else [])]

    def publish(self, broker: str, user: str, topic: str, *more: str, tls: bool = True) -> int:
        """The exit code of one ``mosquitto_pub``."""
        command = [self._pub, *self._at(broker, user, tls=tls), "-t", topic, "-m", "hi", "-V", "5", *more]
        return subprocess.run(command, timeout=DEADLINE_S, capture_output=True).returncode

    def subscribe(self, broker: str, user: str, topic_filter: str, *more: str) -> Heard:
        return Heard([self._sub, *self._at(broker, user), "-v", "-t", topic_filter, "-V", "5", *more])


@pytest.fixture(scope="module")
def plant(
    debian_program: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Plant]:
    plant = Plant(tmp_path_factory.mktemp("plant"), debian_program)
    with plant.running():
        yield plant


def test_a_user_hears_over_tls_what_the_rules_allow_and_nothing_else(plant: Plant) -> None:
    heard = plant.subscribe("b", "watcher", "#")
    try:
        until(
            lambda: bool(heard.lines),
            lambda: plant.publish("a", "press", "plant/press/1"),
            "a message from one broker to the other",
        )
        for qos in ("0", "1", "2"):
            plant.publish("a", "press", "plant/watcher/2", "-q", qos)  # somebody else's
            plant.publish("a", "secret", "plant/secret/3", "-q", qos)  # denied, although its own
            plant.publish("a", "press", "plant/press/last", "-q", qos)
        until(
            lambda: heard.lines.count("plant/press/last hi") == 3,
            lambda: None,
            "three messages that are allowed",
        )
    finally:
        heard.stop()
    assert set(heard.lines) == {"plant/press/1 hi", "plant/press/last hi"}


def test_a_filter_that_can_bring_nothing_is_refused(plant: Plant) -> None:
    heard = plant.subscribe("a", "press", "plant/#")
    heard.process.wait(DEADLINE_S)  # it ends by itself
    heard.stop()
    assert any("subscription requests were denied" in line for line in heard.lines), heard.lines


def test_a_wrong_password_and_no_password_are_refused(plant: Plant) -> None:
    wrong = ["-u", "press", "-P", "guess"]
    assert plant.publish("a", "", "plant/press/x", *wrong) != 0
    assert plant.publish("a", "", "plant/press/x") != 0
    assert plant.publish("a", "", "plant/press/x", tls=False) != 0
    assert plant.publish("a", "press", "plant/press/x", tls=False) == 0


def test_a_client_certificate_is_a_user(plant: Plant) -> None:
    made = plant.authority.sign("press-1")
    identity = ["--cert", str(made.certificate), "--key", str(made.key)]
    heard = plant.subscribe("a", "", "machines/#", *identity)
    try:
        until(
            lambda: bool(heard.lines),
            lambda: plant.publish("b", "", "machines/press-1/x", *identity),
            "a message of the machine to itself",
        )
    finally:
        heard.stop()


def test_users_are_removed_and_added_without_a_restart(plant: Plant) -> None:
    plant.user("add", "guest", "--password-stdin", password="guest's password")
    until(lambda: plant.publish("a", "guest", "plant/guest/x") == 0, lambda: None, "the new user to come in")
    staying = plant.subscribe("a", "watcher", "plant/#")
    plant.user("remove", "watcher")
    try:
        until(
            lambda: plant.publish("a", "watcher", "plant/watcher/x") != 0, lambda: None, "the user to be out"
        )
        # mosquitto_sub tries again for ever, in vain: that it cannot come back is what counts.
        before = len(staying.lines)
        plant.publish("a", "press", "plant/press/after", "-q", "1")
        assert "plant/press/after hi" not in staying.lines[before:]
    finally:
        staying.stop()


def test_a_bad_certificate_file_stops_the_start_with_one_sentence(plant: Plant, tmp_path: Path) -> None:
    config = tmp_path / "tocsin.toml"
    config.write_text("""
        [tls]
        certificate = "/no/such/certificate.pem"
        key = "/no/such/key.pem"
        [[brokers]]
        id = "a"
        cluster = "c"
        tls_port = 0
    """)
    command = [sys.executable, "-m", "tocsin", "up", "-c", str(config), "--ephemeral", "--auto-ports"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_DEADLINE_S)
    assert done.returncode == 2
    assert "/no/such/certificate.pem (tls.certificate) cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
