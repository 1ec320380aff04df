"""Alembic's entry: run the changes on the connection that the store gives."""

from alembic import context

from activity_worker.taskbroker.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table="activitypool_broker_schema",
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
