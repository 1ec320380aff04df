"""The optional rules of a pool's size: each field with its units, bounds and defaults."""

from pydantic import Field

from activity_operator.api import scaling_rules
from activity_operator.api.model import ApiModel, Int32
from activity_operator.api.rules import attach


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
