"""One process that serves several activities in the library: a pool of slots for each, and one registry."""

from activity_worker import Activities, ActivityConsumer, MemorySource, SlotPool

ARN = "arn:aws:states:us-east-1:123456789012:activity:"


async def test_consumer_serves_the_activities_of_one_registry() -> None:
    app = Activities()

    @app.activity
    def resize(job: int) -> str:
        return f"resized {job}"

    @app.activity(arn=f"{ARN}crop-prod")
    async def crop(job: int) -> str:
        return f"cropped {job}"

    sources = [MemorySource(f"{ARN}resize"), MemorySource(f"{ARN}crop-prod")]
    consumer = ActivityConsumer([SlotPool(source, app) for source in sources])
    await consumer.start()
    tokens = [source.put("7") for source in sources]
    outputs = [(await source.concluded(token)).output for source, token in zip(sources, tokens, strict=True)]
    await consumer.stop(abort_polls=True)

    assert outputs == ['"resized 7"', '"cropped 7"']
