"""The settings of a worker of a taskbroker."""

from pathlib import Path

import pytest

from activity_worker.config.reader import SettingsError
from activity_worker.config.settings import read_settings
from activity_worker.config.sources import TaskbrokerSettings
from activity_worker.contract import Env

POD: dict[str, str] = {
    Env.TASKBROKER: "broker-0:50051,[::1]:50052",
    Env.TASKBROKER_APPLICATION: "shop",
    Env.TASKBROKER_NAMESPACE: "mail",
    Env.TASKBROKER_SECRETS: '["ruby", "moon"]',
    Env.TASKBROKER_CA: "-----BEGIN",
}


def test_pod_is_configured_by_its_environment() -> None:
    brokers = ("broker-0:50051", "[::1]:50052")

    source = read_settings({}, POD).source

    assert source == TaskbrokerSettings(brokers, "shop", "mail", ("ruby", "moon"), True, b"-----BEGIN")


def test_flags_beat_the_environment_and_name_files(tmp_path: Path) -> None:
    secrets, ca = tmp_path / "secrets.json", tmp_path / "ca.pem"
    secrets.write_text('["tree"]')
    ca.write_text("PEM")
    flags = {
        "taskbroker": "other:1",
        "taskbroker-application": "bank",
        "taskbroker-namespace": "loans",
        "taskbroker-secrets-file": str(secrets),
        "taskbroker-ca-file": str(ca),
        "taskbroker-tls": "false",
    }

    assert read_settings(flags, POD).source == TaskbrokerSettings(
        ("other:1",), "bank", "loans", ("tree",), False, b"PEM"
    )


def test_broker_alone_is_unsigned_and_without_tls() -> None:
    assert read_settings({"taskbroker": "broker:50051"}, {}).source == TaskbrokerSettings(("broker:50051",))


def test_certificates_of_the_system_are_trusted_where_no_ca_is_named() -> None:
    source = read_settings({"taskbroker": "broker:443", "taskbroker-tls": "true"}, {}).source

    assert source == TaskbrokerSettings(("broker:443",), tls=True)


@pytest.mark.parametrize("address", ["broker", "broker:0", "broker:65536", "a:1,", ",a:1", "a:1, b:1", "http://a:1"])
def test_address_that_is_not_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match="expected HOST:PORT"):
        read_settings({"taskbroker": address}, {})


def test_broker_that_is_named_twice_is_refused() -> None:
    with pytest.raises(SettingsError, match="named twice"):
        read_settings({"taskbroker": "a:1,b:1,a:1"}, {})


def test_secrets_that_are_no_list_are_refused_without_repeating_them() -> None:
    with pytest.raises(SettingsError, match=r"ACTIVITY_TASKBROKER_SECRETS: expected a JSON list") as refused:
        read_settings({}, {**POD, Env.TASKBROKER_SECRETS: "ruby"})

    assert "ruby" not in str(refused.value)


def test_file_that_cannot_be_read_names_its_flag() -> None:
    with pytest.raises(SettingsError, match=r"--taskbroker-ca-file='/nowhere/ca.pem': the file cannot be read"):
        read_settings({"taskbroker": "a:1", "taskbroker-ca-file": "/nowhere/ca.pem"}, {})


def test_secrets_are_in_no_repr() -> None:
    assert "ruby" not in repr(read_settings({}, POD))


def test_two_sources_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"^ACTIVITY_SWF_DOMAIN and ACTIVITY_TASKBROKER name"):
        read_settings({}, {**POD, Env.SWF_DOMAIN: "shop", Env.SWF_TASK_LIST: "list"})


def test_pushed_worker_is_configured_by_its_environment() -> None:
    env: dict[str, str] = {
        Env.TASKBROKER: "broker:50051",
        Env.TASKBROKER_SECRETS: '["ruby"]',
        Env.TASKBROKER_DELIVERY: "push",
        Env.TASKBROKER_ADVERTISE: "fd00::7",
        Env.TASKBROKER_PUSH_CERTIFICATE: "CHAIN",
        Env.TASKBROKER_PUSH_KEY: "KEY",
    }

    assert read_settings({}, env).source == TaskbrokerSettings(
        ("broker:50051",),
        secrets=("ruby",),
        delivery="push",
        push_address="0.0.0.0:50052",
        advertise="fd00::7",
        push_tls=(b"KEY", b"CHAIN"),
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "without secrets everybody who reaches it could run handlers"),
        ({"taskbroker-push-address": "127.0.0.1"}, "expected HOST:PORT, such as"),
        (
            {"taskbroker-push-address": "127.0.0.1:1", "taskbroker-advertise": "a:1:b@"},
            "expected a host without a port",
        ),
        ({"taskbroker-push-address": "127.0.0.1:1", "taskbroker-push-key-file": "key"}, "belong together: give both"),
        ({"taskbroker-delivery": "both"}, "pull"),
    ],
)
def test_push_that_cannot_be_received_is_refused(tmp_path: Path, flags: dict[str, str], message: str) -> None:
    key = tmp_path / "key"
    key.write_text("KEY")
    given = {name: str(key) if name.endswith("-file") else value for name, value in flags.items()}
    with pytest.raises(SettingsError, match=message):
        read_settings({"taskbroker": "broker:1", "taskbroker-delivery": "push", **given}, {})
