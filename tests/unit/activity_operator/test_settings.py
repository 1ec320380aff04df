"""Settings of the process: a flag beats a variable, a variable beats the default, errors name the fix."""

import pytest

from activity_operator.reports.server import MAX_CONNECTIONS
from activity_operator.reports.worker_registry import MAX_WORKERS
from activity_operator.settings import OperatorSettings, OperatorSettingsError


def test_default_settings() -> None:
    settings = OperatorSettings.read([], {})

    assert (settings.lease_duration_seconds, settings.lease_renew_deadline_seconds) == (15.0, 10.0)
    assert (settings.lease_retry_seconds, settings.sweep_seconds, settings.report_rate) == (2.0, 300.0, 200.0)


def test_flag_beats_a_variable() -> None:
    environment = {"ACTIVITYPOOL_SWEEP_SECONDS": "60", "POD_NAMESPACE": "ops"}

    settings = OperatorSettings.read(["--sweep-seconds", "30"], environment)

    assert (settings.sweep_seconds, settings.namespace) == (30.0, "ops")


def test_empty_variable_counts_as_unset() -> None:
    assert OperatorSettings.read([], {"ACTIVITYPOOL_SWEEP_SECONDS": ""}).sweep_seconds == 300.0


def test_workers_report_to_the_service_of_the_operators_namespace() -> None:
    settings = OperatorSettings.read([], {"POD_NAMESPACE": "ops", "ACTIVITYPOOL_REPORT_SERVICE": "reports"})

    assert settings.report_url == "https://reports.ops.svc"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ACTIVITYPOOL_SWEEP_SECONDS", "soon", "ACTIVITYPOOL_SWEEP_SECONDS 'soon': use a number"),
        ("ACTIVITYPOOL_SWEEP_SECONDS", "0", "use a number from 1 to 3600"),
        ("ACTIVITYPOOL_SWEEP_SECONDS", "nan", "use a number from 1 to 3600"),
        ("ACTIVITYPOOL_HEALTH_PORT", "8080.5", "ACTIVITYPOOL_HEALTH_PORT '8080.5': use a whole number"),
        ("ACTIVITYPOOL_LOG_LEVEL", "LOUD", "use one of DEBUG, INFO, WARNING, ERROR"),
        ("ACTIVITYPOOL_LEASE_RENEW_DEADLINE_SECONDS", "15", "below the duration"),
    ],
)
def test_error_of_an_invalid_setting_names_variable_value_and_fix(variable: str, value: str, message: str) -> None:
    with pytest.raises(OperatorSettingsError, match=message):
        OperatorSettings.read([], {variable: value})


def test_connection_limit_has_room_for_every_worker_by_default() -> None:
    assert OperatorSettings().report_connections == MAX_CONNECTIONS > MAX_WORKERS


@pytest.mark.parametrize("value", ["63", "100001", "many", "100.5"])
def test_connection_limit_out_of_its_range_is_refused(value: str) -> None:
    with pytest.raises(OperatorSettingsError, match=f"ACTIVITYPOOL_REPORT_CONNECTIONS '{value}': use a whole number"):
        OperatorSettings.read([], {"ACTIVITYPOOL_REPORT_CONNECTIONS": value})
