"""The worker runtime: it polls a task source, runs your handler, heartbeats and concludes the task."""
