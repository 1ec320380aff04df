"""The settings of a worker of Amazon SWF."""

import pytest

from activity_worker.config.reader import SettingsError
from activity_worker.config.settings import read_settings
from activity_worker.config.sources import SwfSettings
from activity_worker.contract import Env

POD: dict[str, str] = {
    Env.SWF_DOMAIN: "shop",
    Env.SWF_TASK_LIST: "in voices",
    Env.SWF_ENDPOINT_URL: "http://swf:1",
    Env.SWF_REGISTER: "true",
    Env.REGION: "eu-west-1",
}


def test_pod_is_configured_by_its_environment() -> None:
    assert read_settings({}, POD).source == SwfSettings("shop", "in voices", "eu-west-1", "http://swf:1", None, True)


def test_flags_beat_the_environment() -> None:
    flags = {"swf-domain": "bank", "swf-register-activity-types": "false", "endpoint-url": "http://other:2"}

    source = read_settings(flags, POD).source

    assert source == SwfSettings("bank", "in voices", "eu-west-1", "http://other:2", None, False)


def test_domain_without_a_task_list_names_the_missing_flag() -> None:
    with pytest.raises(SettingsError, match="--swf-task-list"):
        read_settings({"swf-domain": "shop"}, {})


@pytest.mark.parametrize("name", ["a:b", "a/b", "a|b", "arn", " a", "a ", "x" * 257, "a\tb"])
def test_name_that_the_service_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="a name of 1 to 256 characters"):
        read_settings({"swf-domain": "shop", "swf-task-list": name}, {})


def test_second_source_is_refused() -> None:
    with pytest.raises(SettingsError, match="name a source each"):
        read_settings({"swf-domain": "shop", "swf-task-list": "a", "redis-url": "redis://here"}, {})
