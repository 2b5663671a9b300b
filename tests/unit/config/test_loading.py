"""Precedence, origins, and one test for every way in which a setting is refused."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.config.conftest import Refusal
from tocsin.config import (
    DEFAULT_BROKERS,
    SETTINGS,
    Criterion,
    File,
    Settings,
    from_json,
    load,
    to_json,
    value_of,
)

# ── what is accepted ─────────────────────────────────────────────────────────────────────────────────────────
from tocsin.errors import SettingError


def test_without_sources_everything_is_default() -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert set(loaded.origins) == set(SETTINGS)
    assert set(loaded.origins.values()) == {"default"}


def test_the_default_network_has_two_clusters_of_two_edges_and_a_hub() -> None:
    assert [(broker.id, broker.role, broker.port) for broker in Settings().brokers] == [
        ("north-1", "edge", 1883),
        ("north-2", "edge", 1884),
        ("north-hub", "routing", 1885),
        ("south-1", "edge", 1886),
        ("south-2", "edge", 1887),
        ("south-hub", "routing", 1888),
    ]
    assert {broker.cluster for broker in DEFAULT_BROKERS} == {"north", "south"}


@pytest.mark.parametrize(
    ("layers", "port", "origin"),
    [
        (0, 4222, "default"),
        (1, 4301, "tocsin.toml"),
        (2, 4302, "environment variable TOCSIN_NATS__PORT"),
        (3, 4303, "flag"),
    ],
)
def test_flags_beat_the_environment_beats_the_file_beats_defaults(
    layers: int, port: int, origin: str
) -> None:
    loaded = load(
        file=File("tocsin.toml", "[nats]\nport = 4301") if layers >= 1 else None,
        environment={"TOCSIN_NATS__PORT": "4302"} if layers >= 2 else {},
        flags={"nats.port": 4303} if layers >= 3 else {},
    )
    assert loaded.settings.nats.port == port
    assert loaded.origins["nats.port"] == origin
    assert loaded.origins["nats.host"] == "default"


def test_text_from_the_environment_becomes_the_type_of_the_setting() -> None:
    loaded = load(
        environment={
            "TOCSIN_NATS__URLS": "nats://a:4222, nats://b:4222",
            "TOCSIN_LIMITS__CONNECT_DEADLINE_S": "2.5",
            "TOCSIN_NATS__SERVERS": "3",
            "TOCSIN_NATS__TOKEN": "12345",
            "TOCSIN_BROKERS": '[{"id": "a", "cluster": "c", "port": 1}]',
            "TOCSIN_SPARK__CONF": '{"spark.executor.memory": "4g"}',
            "TOCSIN_SCORING__CRITERIA": '[{"name": "link", "command": ["ping", "-c1"], "weight": 2}]',
        }
    ).settings
    assert loaded.nats.urls == ("nats://a:4222", "nats://b:4222")
    assert loaded.limits.connect_deadline_s == 2.5
    assert loaded.nats.servers == 3
    assert loaded.nats.token == "12345"
    assert loaded.spark.conf == {"spark.executor.memory": "4g"}
    assert loaded.scoring.criteria == (Criterion(name="link", command=("ping", "-c1"), weight=2.0),)
    assert [(broker.id, broker.role, broker.port) for broker in loaded.brokers] == [("a", "edge", 1)]


def test_a_whole_number_is_a_number_of_seconds() -> None:
    assert load(file=File("f", "[nats]\ndeadline_s = 3")).settings.nats.deadline_s == 3.0


def test_variables_that_are_not_settings_are_left_alone() -> None:
    environment = {"TOCSIN_STATUS_FD": "5", "TOCSIN_NATS_SERVER": "/bin/nats", "HOME": "/", "tocsin_x": "1"}
    assert load(environment=environment).settings == Settings()


@pytest.mark.parametrize("host", ["::1", "0.0.0.0", "localhost", "a-b.example.org", "broker1"])
def test_addresses_and_names_are_hosts(host: str) -> None:
    assert load(flags={"nats.host": host}).settings.nats.host == host


def test_ports_of_zero_never_clash() -> None:
    text = '[[brokers]]\nid="a"\ncluster="c"\n[[brokers]]\nid="b"\ncluster="c"\n'
    assert [broker.port for broker in load(file=File("f", text)).settings.brokers] == [0, 0]


def test_the_same_port_on_two_addresses_is_no_clash() -> None:
    brokers = [
        {"id": "a", "cluster": "c", "host": "127.0.0.1", "port": 1883},
        {"id": "b", "cluster": "c", "host": "127.0.0.2", "port": 1883},
    ]
    assert len(load(flags={"brokers": brokers}).settings.brokers) == 2


def test_brokers_on_the_port_of_servers_that_run_elsewhere_are_no_clash() -> None:
    flags = {"nats.urls": "nats://db:4222", "brokers": [{"id": "a", "cluster": "c", "port": 4222}]}
    assert load(flags=flags).settings.brokers[0].port == 4222


@given(
    port=st.integers(0, 65_533),
    servers=st.sampled_from([1, 3]),
    token=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40),
    level=st.sampled_from(["debug", "info", "warning", "error"]),
)
def test_settings_survive_the_way_to_a_child(port: int, servers: int, token: str, level: str) -> None:
    brokers = [{"id": "a", "cluster": "c"}]
    flags = {"nats.port": port, "nats.servers": servers, "nats.token": token, "log.level": level}
    flags["feeds.http_port"] = flags["door.port"] = -1  # which could have the same port
    settings = load(flags={**flags, "brokers": brokers}).settings
    assert from_json(to_json(settings)) == settings
    assert {key: value_of(settings, key) for key in flags} == flags


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_refusal_names_key_value_source_problem_and_remedy(refused: Refusal) -> None:
    error = refused("[nats]\nport = 70000")
    assert (error.key, error.value, error.source) == ("nats.port", 70000, "tocsin.toml")
    assert str(error) == (
        "nats.port = 70000 (tocsin.toml): must be a whole number from 0 to 65535. "
        "Correct it, or leave it out for 4222."
    )


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[nats]\nport = "4222"', "nats.port"),
        ("[nats]\nport = true", "nats.port"),
        ("[nats]\nport = 42.5", "nats.port"),
        ("[nats]\nport = 2020-01-01", "nats.port"),
        ("[nats]\nhost = 5", "nats.host"),
        ('[nats]\nurls = "nats://a:1"', "nats.urls"),
        ("[nats]\nurls = [1]", "nats.urls"),
        ("[nats]\ndeadline_s = nan", "nats.deadline_s"),
        ("[spark.conf]\n'spark.cores.max' = 4", "spark.conf"),
        ("[scoring]\ncriteria = 'ping'", "scoring.criteria"),
        ("[spark]\nconf = 'spark.cores.max=4'", "spark.conf"),
        ('brokers = "x"', "brokers"),
        ("brokers = [1]", "brokers"),
        ("[brokers]\nid = 1", "brokers"),
        ("state = 3", "state"),
    ],
)
def test_a_wrong_type_in_the_file_is_refused(refused: Refusal, text: str, key: str) -> None:
    assert refused(text).key == key


def test_text_that_is_no_number_is_refused_with_its_variable(refused: Refusal) -> None:
    error = refused(environment={"TOCSIN_NATS__PORT": "soon"})
    assert (error.value, error.source) == ("soon", "environment variable TOCSIN_NATS__PORT")


def test_an_unknown_key_is_refused_with_the_nearest_one(refused: Refusal) -> None:
    error = refused("[nats]\nprot = 1")
    assert error.key == "nats.prot"
    assert error.remedy == "Did you mean nats.port"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("nets", "nats"), ("port", "nats.port"), ("limit.topic_depth_max", "limits.topic_depth_max")],
)
def test_an_unknown_key_finds_its_section(refused: Refusal, key: str, nearest: str) -> None:
    assert refused(flags={key: 1}).remedy == f"Did you mean {nearest}"


def test_an_unknown_key_like_no_other_is_sent_to_the_list(refused: Refusal) -> None:
    assert "tocsin config show" in refused("zzzzqq = 1").remedy


def test_an_unknown_variable_is_refused(refused: Refusal) -> None:
    error = refused(environment={"TOCSIN_NATS_PORT": "1"})
    assert error.source == "environment variable TOCSIN_NATS_PORT"
    assert error.remedy == "Did you mean nats.port"


def test_a_value_for_a_section_is_refused(refused: Refusal) -> None:
    assert "is a section" in refused("nats = 3").problem
    assert "nats.port" in refused(environment={"TOCSIN_NATS": "3"}).remedy


def test_bad_toml_is_refused_with_line_and_column(refused: Refusal) -> None:
    error = refused("state = 'x'\n[nats]\nport 4222\n")
    assert error.key == "line 3, column 6"
    assert error.value == "port 4222"
    assert "not TOML" in error.problem


def test_toml_that_ends_too_soon_is_refused(refused: Refusal) -> None:
    assert refused("state = ").source == "tocsin.toml"
    assert "not TOML" in refused('brokers = [{id = "a"},').problem


def test_a_key_given_twice_is_refused(refused: Refusal) -> None:
    assert "not TOML" in refused("state = 'a'\nstate = 'b'").problem


def test_brokers_that_are_no_json_are_refused(refused: Refusal) -> None:
    assert "not JSON" in refused(environment={"TOCSIN_BROKERS": "north-1"}).problem


@pytest.mark.parametrize(
    ("brokers", "key", "problem"),
    [
        ([], "brokers", "at least one broker"),
        ([{"id": f"b{n}", "cluster": "c"} for n in range(257)], "brokers", "at most 256"),
        ([{"cluster": "c"}], "brokers[0].id", "needs one"),
        ([{"id": "a"}], "brokers[0].cluster", "needs one"),
        ([{"id": "A", "cluster": "c"}], "brokers[0].id", "must be a name"),
        ([{"id": "a" * 64, "cluster": "c"}], "brokers[0].id", "must be a name"),
        ([{"id": "a", "cluster": "c d"}], "brokers[0].cluster", "must be a name"),
        ([{"id": "a", "cluster": "c", "port": 65_536}], "brokers[0].port", "must be a whole number"),
        ([{"id": "a", "cluster": "c", "tls_port": -2}], "brokers[0].tls_port", "must be a whole number"),
        ([{"id": "a", "cluster": "c", "ws_port": 65_536}], "brokers[0].ws_port", "must be a whole number"),
        ([{"id": "a", "cluster": "c", "wss_port": "x"}], "brokers[0].wss_port", "must be a whole number"),
        ([{"id": "a", "cluster": "c", "tls_port": 8883}], "brokers[0].tls_port", "needs a certificate"),
        ([{"id": "a", "cluster": "c", "wss_port": 0}], "brokers[0].wss_port", "needs a certificate"),
        (
            [{"id": "a", "cluster": "c", "port": 5, "ws_port": 5}],
            "brokers[0].ws_port",
            "brokers[0].port uses the same port",
        ),
        ([{"id": "a", "cluster": "c", "role": "boss"}], "brokers[0].role", "must be edge or routing"),
        ([{"id": "a", "cluster": "c", "host": "no host"}], "brokers[0].host", "not a host"),
        ([{"id": "a", "cluster": "c", "tls_host": "no host"}], "brokers[0].tls_host", "not a host"),
        ([{"id": "a", "cluster": "c", "ws_host": "no host"}], "brokers[0].ws_host", "not a host"),
        ([{"id": "a", "cluster": "c", "wss_host": "no host"}], "brokers[0].wss_host", "not a host"),
        ([{"id": "a", "cluster": "c", "link_host": "no host"}], "brokers[0].link_host", "not a host"),
        ([{"id": "a", "cluster": "c", "port": -1}], "brokers[0].port", "no way into this broker"),
        ([{"id": "a", "cluster": "c", "port": -2}], "brokers[0].port", "must be a whole number"),
        ([{"id": "a", "cluster": "c", "link_port": -1}], "brokers[0].link_port", "must be a whole number"),
        ([{"id": "a", "cluster": "c", "port": 7, "link_port": 7}], "brokers[0].link_port", "same port"),
        ([{"id": "a", "cluster": "c", "advertise": "no host"}], "brokers[0].advertise", "not a host"),
        ([{"id": "a", "cluster": "c", "public": ["a:1"]}], "brokers[0].public", "not an entrance"),
        (
            [{"id": "a", "cluster": "c", "public": ["mqtt://a"]}],
            "brokers[0].public",
            "lacks a host or a port",
        ),
        ([{"id": "a", "cluster": "c", "public": ["mqtt://A:1"]}], "brokers[0].public", "has capitals"),
        ([{"id": "a", "cluster": "c", "public": ["mqtt://u:p@a:1"]}], "brokers[0].public", "a password"),
        (
            [{"id": "a", "cluster": "c", "public": ["ws://a:1", "ws://b:1"]}],
            "brokers[0].public",
            "there is another for ws",
        ),
        (
            [
                {"id": "a", "cluster": "c"},
                {"id": "s", "cluster": "c", "role": "standby", "may_stand_by": True},
            ],
            "brokers[1].may_stand_by",
            "only edge brokers are recruited",
        ),
        (
            [{"id": "a", "cluster": "c", "may_stand_by": "maybe"}],
            "brokers[0].may_stand_by",
            "must be true or false",
        ),
        ([{"id": "a", "cluster": "c", "port": True}], "brokers[0].port", "must be a whole number"),
        ([{"id": "a", "cluster": "c", "prot": 1}], "brokers[0].prot", "no such setting"),
        ([{"id": "a", "cluster": "c"}, {"id": "a", "cluster": "c"}], "brokers[1].id", "same id"),
        (
            [{"id": "a", "cluster": "c", "port": 5}, {"id": "b", "cluster": "c", "port": 5}],
            "brokers[1].port",
            "brokers[0].port uses the same port",
        ),
        (
            [
                {"id": "a", "cluster": "c", "port": 5},
                {"id": "b", "cluster": "c", "port": 5, "host": "0.0.0.0"},
            ],
            "brokers[1].port",
            "same port",
        ),
        ([{"id": "a", "cluster": "c", "port": 4222}], "brokers[0].port", "nats.port uses the same"),
        (
            [{"id": "a", "cluster": "c"}, {"id": "b", "cluster": "d", "role": "standby"}],
            "brokers",
            "no edge broker",
        ),
        ([{"id": "b", "cluster": "d", "role": "routing"}], "brokers", "no edge broker"),
        ([{"id": "a", "cluster": "c", "tier": "wan"}], "brokers[0].tier", "not a routing broker"),
    ],
)
def test_brokers_that_cannot_work_are_refused(
    refused: Refusal, brokers: list[object], key: str, problem: str
) -> None:
    error = refused(flags={"brokers": brokers})
    assert error.key == key
    assert problem in error.problem


def test_a_cluster_may_be_of_routing_brokers_alone() -> None:
    text = '[[brokers]]\nid="a"\ncluster="c"\n[[brokers]]\nid="b"\ncluster="d"\nrole="routing"\ntier="wan"'
    assert load(file=File("f", text)).settings.brokers[1].tier == "wan"


def test_a_file_says_truth_values_as_such(refused: Refusal) -> None:
    text = '[[brokers]]\nid="a"\ncluster="c"\nmay_stand_by=true'
    assert load(file=File("f", text)).settings.brokers[0].may_stand_by
    assert refused('[[brokers]]\nid="a"\ncluster="c"\nmay_stand_by=1').key == "brokers[0].may_stand_by"


def test_a_misspelt_field_of_a_broker_is_named(refused: Refusal) -> None:
    assert refused('[[brokers]]\nid="a"\ncluster="c"\nprot=1').remedy == "Did you mean brokers[0].port"


@pytest.mark.parametrize("host", ["", "a b", "300.1.1.1", "-a", "a..b", "[::1]", "x" * 64, "a/b"])
def test_a_bad_host_is_refused(refused: Refusal, host: str) -> None:
    error = refused(flags={"nats.host": host})
    assert error.key == "nats.host" and "not a host" in error.problem


@pytest.mark.parametrize(
    "url",
    [
        "localhost:4222",
        "http://a:4222",
        "nats://a",
        "nats://:4222",
        "nats://a:99999",
        "nats://a:1/x",
        "nats://a b:1",
    ],
)
def test_a_bad_server_address_is_refused(refused: Refusal, url: str) -> None:
    assert refused(flags={"nats.urls": [url]}).key == "nats.urls"


def test_a_secret_in_a_server_address_is_refused_and_not_repeated(refused: Refusal) -> None:
    error = refused(flags={"nats.urls": ["nats://hush@a:4222"]})
    assert "nats.token" in error.problem
    assert "hush" not in str(error)


def test_a_token_with_blanks_is_refused_and_not_repeated(refused: Refusal) -> None:
    error = refused(environment={"TOCSIN_NATS__TOKEN": "my secret"})
    assert error.key == "nats.token"
    assert "my secret" not in str(error)


@pytest.mark.parametrize("text", ["[nats]\ntoken = 12345678", "[nats]\ntokn = 12345678", "token = '12345678"])
def test_a_token_is_not_repeated_however_it_is_wrong(refused: Refusal, text: str) -> None:
    assert "12345678" not in str(refused(text))


@pytest.mark.parametrize("text", ["[feeds]\npassword = 12345678", "[feeds]\npasword = 12345678"])
def test_a_password_is_not_repeated_however_it_is_wrong(refused: Refusal, text: str) -> None:
    assert "12345678" not in str(refused(text))


def test_the_feeds_door_needs_a_host_and_its_own_port(refused: Refusal) -> None:
    assert refused(flags={"feeds.http_host": "a b"}).key == "feeds.http_host"
    error = refused(flags={"feeds.http_port": 1883})
    assert error.key == "feeds.http_port" and "uses the same port" in error.problem


def test_the_figures_of_a_broker_need_a_port_of_their_own(refused: Refusal) -> None:
    one = {"id": "a", "cluster": "c", "port": 1, "metrics_port": 0}
    broker = load(flags={"brokers": [one | {"host": "0.0.0.0"}]}).settings.brokers[0]
    assert (broker.ports()["metrics_port"], broker.host_of("metrics_port")) == (0, "127.0.0.1")
    assert broker.entrances().keys() == {"mqtt"}
    error = refused(flags={"brokers": [one | {"metrics_port": 1}]})
    assert error.key == "brokers[0].metrics_port" and "uses the same port" in error.problem
    assert refused(flags={"brokers": [one | {"metrics_host": "a b"}]}).key == "brokers[0].metrics_host"


@pytest.mark.parametrize("section", ["feeds", "pipeline"])
def test_figures_need_a_host_and_a_port_of_their_own(refused: Refusal, section: str) -> None:
    assert refused(flags={f"{section}.metrics_host": "a b"}).key == f"{section}.metrics_host"
    error = refused(flags={f"{section}.metrics_port": 1883})
    assert error.key == f"{section}.metrics_port" and "uses the same port" in error.problem


def test_three_servers_beyond_the_last_port_are_refused(refused: Refusal) -> None:
    error = refused(flags={"nats.port": 65_534, "nats.servers": 3})
    assert error.key == "nats.port" and "65533" in error.remedy


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"tls.certificate": "a.pem"}, "tls.key"),
        ({"tls.key": "a.pem"}, "tls.certificate"),
        ({"tls.client_certificates": "required"}, "tls.client_ca"),
        ({"tls.client_crl": "crl.pem"}, "tls.client_crl"),
        ({"tls.client_certificates": "optional"}, "tls.client_ca"),
        ({"access.anonymous": "never"}, "access.anonymous"),
        ({"access.registration": "open"}, "access.registered_rules"),
        ({"access.registered_rules": "rules"}, "access.registered_rules"),
        ({"feeds.https_port": 0}, "feeds.https_port"),
        ({"door.tls_port": 0}, "door.tls_port"),
        ({"door.cluster": "west"}, "door.cluster"),
        ({"door.host": "not a host"}, "door.host"),
        ({"door.advertise": "not a host"}, "door.advertise"),
        ({"door.public": ["ws://a:1"]}, "door.public"),
        ({"door.port": 1883}, "door.port"),
        ({"feeds.password": "hush"}, "feeds.username"),
    ],
)
def test_half_of_what_belongs_together_is_refused(
    refused: Refusal, flags: dict[str, object], key: str
) -> None:
    assert refused(flags=flags).key == key


@pytest.mark.parametrize("how", ["open", "invited", "approved"])
def test_nobody_registers_where_every_way_in_is_clear_text(refused: Refusal, how: str) -> None:
    broker = {"id": "a", "cluster": "c", "host": "192.0.2.1", "port": 1883}
    flags = {"access.registration": how, "access.registered_rules": "rules", "brokers": [broker]}
    assert refused(flags=flags).key == "access.registration"
    secure = {"tls.certificate": "a.pem", "tls.key": "a.key", "brokers": [{**broker, "tls_port": 8883}]}
    assert load(flags={**flags, **secure}).settings.access.registration == how


def test_nobody_may_come_in_unnamed_if_there_are_users_or_certificates() -> None:
    for flags in (
        {"access.users": "users"},
        {"access.registration": "open", "access.registered_rules": "rules"},
        {"tls.client_ca": "ca.pem", "tls.client_certificates": "required"},
    ):
        assert load(flags={**flags, "access.anonymous": "never"}).settings.access.anonymous == "never"


def test_a_broker_has_the_listeners_whose_port_is_not_minus_one() -> None:
    brokers = [{"id": "a", "cluster": "c", "port": 1, "tls_port": 0, "ws_port": 2}]
    flags = {"brokers": brokers, "tls.certificate": "c.pem", "tls.key": "k.pem"}
    found = load(flags=flags).settings.brokers[0].ports()
    assert found == {"port": 1, "tls_port": 0, "ws_port": 2, "link_port": 0}
    assert DEFAULT_BROKERS[0].ports() == {"port": 1883, "link_port": 0}


def test_the_plain_port_can_be_closed() -> None:
    flags = {"tls.certificate": "c.pem", "tls.key": "k.pem"}
    brokers = [{"id": "a", "cluster": "c", "port": -1, "tls_port": 8883, "advertise": "a.example.org"}]
    closed = load(flags={"brokers": brokers, **flags}).settings.brokers[0]
    assert closed.entrances() == {"mqtts": "a.example.org:8883"}
    hub = {"id": "hub", "cluster": "c", "role": "routing", "port": -1}
    assert load(flags={"brokers": [*brokers, hub], **flags}).settings.brokers[1].entrances() == {}


def test_each_listener_may_have_an_address_of_its_own() -> None:
    flags = {"tls.certificate": "c.pem", "tls.key": "k.pem"}
    given = {"id": "a", "cluster": "c", "port": 1, "tls_port": 2, "ws_port": 3, "wss_port": 4, "link_port": 5}
    hosts = {"tls_host": "0.0.0.0", "wss_host": "::1", "link_host": "10.0.0.5"}
    broker = load(flags={"brokers": [given | hosts], **flags}).settings.brokers[0]
    assert {name: broker.host_of(name) for name in broker.ports()} == {
        "port": "127.0.0.1", "tls_port": "0.0.0.0", "ws_port": "127.0.0.1", "wss_port": "::1", "link_port": "10.0.0.5",
    }  # fmt: skip
    assert broker.entrances() == {
        "mqtt": "127.0.0.1:1", "mqtts": "127.0.0.1:2", "ws": "127.0.0.1:3", "wss": "[::1]:4",
    }  # fmt: skip
    assert broker.links_at() == "10.0.0.5"
    advertised = msgspec.structs.replace(broker, advertise="a.example.org", link_host="0.0.0.0")
    assert advertised.links_at() == "a.example.org" and advertised.entrances()["mqtts"] == "a.example.org:2"
    brokers = [given | {"link_port": 1, "link_host": "10.0.0.5"}]  # the same port on another address
    assert load(flags={"brokers": brokers, **flags}).settings.brokers[0].link_port == 1


def test_a_tier_with_fewer_members_at_most_than_at_least_is_refused(refused: Refusal) -> None:
    error = refused(flags={"routing.least": 3, "routing.most": 2})
    assert error.key == "routing.most" and "at least 3" in error.remedy


def test_a_command_for_tiers_that_never_grow_is_refused(refused: Refusal) -> None:
    error = refused(flags={"routing.command": ["scale"]})
    assert error.key == "routing.command" and "routing.least" in error.remedy


def test_suspicion_within_two_heartbeats_is_refused(refused: Refusal) -> None:
    error = refused("[membership]\nheartbeat_ms = 3000")
    assert error.key == "membership.suspect_after_ms"
    assert "6000" in error.remedy


def test_a_longest_silence_below_the_shortest_is_refused(refused: Refusal) -> None:
    error = refused("[membership]\nsuspect_least_ms = 7000")
    assert error.key == "membership.suspect_after_ms"
    assert "7000" in error.remedy


@pytest.mark.parametrize(("key", "value"), [("heartbeat_ms", 49), ("phi", 0.5), ("suspect_least_ms", 99)])
def test_what_is_neither_left_to_detect_nor_large_enough_is_refused(
    refused: Refusal, key: str, value: float
) -> None:
    error = refused(flags={f"membership.{key}": value})
    assert error.key == f"membership.{key}" and "Choose 0 or at least" in error.remedy


def test_detect_is_several_settings_of_which_each_can_be_given() -> None:
    usual = load().settings.membership
    assert (usual.beat_ms, usual.threshold, usual.least_ms) == (1_000, 6.0, 1_650)
    flags = {"membership.detect": "aggressive", "membership.phi": 7}
    quick = load(flags=flags).settings.membership
    assert (quick.beat_ms, quick.threshold, quick.least_ms) == (250, 7.0, 570)


@given(st.text(max_size=200))
def test_any_text_is_settings_or_a_refusal(text: str) -> None:
    with contextlib.suppress(SettingError):
        load(file=File("f", text))
