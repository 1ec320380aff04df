"""The one question that the operator asks a task store, as PostgreSQL takes it: `taskstore.is_due` by task.

Kept apart from the tables: the operator then needs the database's driver and nothing else.
"""

#: The channel of PostgreSQL's NOTIFY on which new and changed instances are announced; the payload is the task's name.
CHANNEL = "activitypool_tasks"
#: The most instances that are counted: more than any pool has slots.
MOST_DUE = 100_000

#: Rows of `task_name` and `due`; $1 is the present time in Unix seconds.
DUE_BY_TASK = f"""
SELECT task_name, count(*) AS due
FROM (
  SELECT task_name FROM activitypool_instances
  WHERE complete IS FALSE AND paused IS FALSE AND next_run_time <= $1
  LIMIT {MOST_DUE}
) AS now_due
GROUP BY task_name
"""  # noqa: S608 - a number of our own
