"""The optional rules of a pool's size: each field with its units, bounds and defaults."""

from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from activity_operator.api import scaling_rules
from activity_operator.api.model import ApiModel, Int32
from activity_operator.api.rules import attach
from activity_operator.api.times import from_rfc3339

CronText = Annotated[str, Field(max_length=64, json_schema_extra=attach(scaling_rules.CRON))]
Moment = Annotated[datetime, BeforeValidator(lambda raw: from_rfc3339(raw) if isinstance(raw, str) else raw)]


class Throughput(ApiModel):
    """A least size for the rate at which tasks have come."""

    window_seconds: Int32 = Field(
        default=300,
        ge=60,
        le=600,
        description="Seconds over which the rate is measured, 60 to 600, in whole minutes (default 300).",
    )
    seconds_per_task: float | None = Field(
        default=None,
        le=86_400,
        json_schema_extra=attach(scaling_rules.SECONDS_PER_TASK),
        description="Seconds that one task takes. Unset (default): measured, from the workers' reports.",
    )


class Schedule(ApiModel):
    """Other limits of the size at certain times: each day or week by cron, or once."""

    model_config = ConfigDict(json_schema_extra=attach(scaling_rules.SCHEDULE))

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Name of the schedule, for reasons and the status.",
    )
    time_zone: str = Field(
        default="UTC",
        max_length=64,
        json_schema_extra=attach(scaling_rules.TIME_ZONE),
        description="Time zone of startCron and endCron, such as Europe/Berlin (default UTC).",
    )
    start_cron: CronText | None = Field(
        default=None,
        description="Cron expression of five fields: when the schedule begins, such as 0 8 * * 1-5. Needs endCron.",
    )
    end_cron: CronText | None = Field(default=None, description="Cron expression of when the schedule ends.")
    start_time: Moment | None = Field(
        default=None, description="When the schedule begins, once, such as 2026-11-27T00:00:00Z. Needs endTime."
    )
    end_time: Moment | None = Field(default=None, description="When the schedule ends.")
    min_workers: Int32 | None = Field(
        default=None, ge=0, le=1000, description="minWorkers in this time. Unset (default): the pool's own."
    )
    max_workers: Int32 | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="maxWorkers in this time, at most the pool's own. Unset (default): the pool's own.",
    )
