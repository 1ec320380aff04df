"""Half an hour of load and random faults; afterwards no task may be lost and no process may have grown."""
