"""The one question that the operator asks a task store, as PostgreSQL takes it: how many instances are due.

Kept apart from the tables: the operator then needs the database's driver and nothing else. "Due" is what
`taskstore.is_due` says; a test holds the two against each other.
"""

#: The channel of PostgreSQL's NOTIFY on which new and changed instances are announced; the payload is the task's name.
CHANNEL = "activitypool_tasks"
#: The most instances that are counted over all tasks: more than any pools have slots.
MOST_DUE = 100_000

_DUE = "complete IS FALSE AND paused IS FALSE AND next_run_time <= $1"

#: One number; $1 is the present time in Unix seconds.
DUE = f"SELECT count(*) FROM (SELECT FROM activitypool_instances WHERE {_DUE} LIMIT {MOST_DUE}) AS now_due"  # noqa: S608
#: Rows of `task_name` and `due`; $1 as above, $2 the names. All are counted: the first of a crowd may all be others'.
DUE_BY_TASK = (
    f"SELECT task_name, count(*) AS due FROM activitypool_instances "  # noqa: S608 - our own words
    f"WHERE {_DUE} AND task_name = ANY($2::text[]) GROUP BY task_name LIMIT cardinality($2::text[])"
)
