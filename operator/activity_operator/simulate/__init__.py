"""The simulator: the operator's own decisions on a trace of tasks, in virtual time, beside other autoscalers."""
