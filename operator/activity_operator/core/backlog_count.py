"""What a source, or somebody who watches it, says of the tasks that wait: the same for every kind of source."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BacklogCount:
    """How many tasks wait, as counted at `observed_at` (Unix seconds).

    `exact`: the source itself counted, a moment ago, tasks that no worker has. Otherwise it is a lower bound, perhaps
    minutes old: at least so many were waiting, and some of them may run by now.
    `with_running`: tasks that workers have are counted too, also those whose worker is dead.
    """

    tasks: int
    exact: bool
    observed_at: float
    with_running: bool = False
