"""People register over real TLS with processes started by ``tocsin up``, and an operator approves them."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.running import DEADLINE_S, until, up
from tocsin.client import Client, change_password, register, remove_account
from tocsin.errors import AccountRefused, BrokerUnreachable

PASSWORD = "correct horse battery"
RULES = """
[[rules]]
allow = "both"
topics = ["people/%u/#"]
users = ["*"]
"""


def test_a_stranger_registers_over_tls_is_approved_and_leaves(
    debian_program: Callable[[str, str], str], tmp_path: Path
) -> None:
    authority = Authority(debian_program("openssl", "openssl"), tmp_path)
    made = authority.sign("localhost")
    (tmp_path / "registered.toml").write_text(RULES)
    config = tmp_path / "tocsin.toml"
    config.write_text(f"""
        [tls]
        certificate = "{made.certificate}"
        key = "{made.key}"
        [access]
        registration = "approved"
        registered_rules = "{tmp_path / "registered.toml"}"
        anonymous = "never"
        [[brokers]]
        id = "a"
        cluster = "c"
        port = -1
        tls_port = 0
        [[brokers]]
        id = "b"
        cluster = "c"
        port = -1
        tls_port = 0
    """)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    state = tmp_path / "state"

    def tocsin(*arguments: str) -> str:
        command = [sys.executable, "-m", "tocsin", *arguments, "--state", str(state)]
        environment = {**os.environ, "TOCSIN_PASSWORD": PASSWORD}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, check=True, env=environment
        )
        return done.stdout

    with up("-c", str(config), "--set", "door.port=-1", state=state) as line:
        here, there = (f"mqtts://127.0.0.1:{broker['tls_port']}" for broker in line["brokers"])

        def logs_in(server: str, password: str = PASSWORD) -> bool:
            try:
                with Client(server, username="~ann", password=password, tls=context, redial=False):
                    return True
            except BrokerUnreachable:
                return False

        account = register(here, "ann", PASSWORD, tls=context)
        assert (account.name, account.state) == ("~ann", "waiting")
        assert not logs_in(here)
        with pytest.raises(AccountRefused, match="cannot be had"):
            register(there, "ann", "another password", tls=context)

        user = ("-c", str(config))
        assert tocsin("user", "pending", *user) == "~ann\n"
        assert tocsin("user", "approve", "~ann", *user) == "~ann may log in\n"
        until(lambda: logs_in(there), lambda: None, "the other broker knows the account")
        until(lambda: "used" in tocsin("user", "list", *user), lambda: None, "the account is used")

        with Client(there, username="~ann", password=PASSWORD, tls=context, redial=False) as client:
            client.publish("people/~ann/door", "open", qos=1)
            change_password(here, "ann", PASSWORD, "another password", tls=context)
            until(lambda: not client.connected, lambda: None, "the client with the old password goes")
        until(lambda: logs_in(there, "another password"), lambda: None, "the new password counts")
        assert not logs_in(there)

        assert remove_account(there, "ann", "another password", tls=context).state == "removed"
        until(lambda: not logs_in(here, "another password"), lambda: None, "the account is gone")
        said = tocsin("register", "bob", "--at", here, "--cafile", str(authority.certificate))
        assert said == "~bob waits until the operator approves it\n"

    lines = [json.loads(each) for each in (state / "audit" / "audit.log").read_text().splitlines()]
    actions = [each["action"] for each in lines if each["outcome"] == "done"]
    assert actions == ["register", "approve user", "change own password", "remove own account", "register"]
    assert PASSWORD not in str(lines)
