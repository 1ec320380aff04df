"""From settings to a source. What a source needs is imported when it is chosen: it takes long, or is an extra."""

from activity_worker.source_settings import SourceSettings, StepFunctionsSettings
from activity_worker.sources.protocol import Source


async def open_source(settings: SourceSettings) -> Source:
    """Return the source, which is the caller's to close."""
    if isinstance(settings, StepFunctionsSettings):
        return _step_functions(settings)
    raise NotImplementedError(type(settings).__name__)


def _step_functions(settings: StepFunctionsSettings) -> Source:
    from activity_worker.sources.stepfunctions import StepFunctionsSource  # noqa: PLC0415
    from activity_worker.wire.stepfunctions import StepFunctionsClient  # noqa: PLC0415

    client = StepFunctionsClient.open(
        region=settings.region, endpoint_url=settings.endpoint_url, profile=settings.profile
    )
    return StepFunctionsSource(client, settings.activity_arn, owns_client=True)
