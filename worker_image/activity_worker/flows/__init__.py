"""Flows of Redis queues: make jobs, follow them, work on them in this process, look after lost locks."""

from activity_worker.flows.definition import FlowDefinition, FlowError, Queue
from activity_worker.flows.flow import Flow
from activity_worker.flows.job import Failure, Job, JobState
from activity_worker.flows.monitor import LockMonitor, MonitorOptions

__all__ = [
    "Failure",
    "Flow",
    "FlowDefinition",
    "FlowError",
    "Job",
    "JobState",
    "LockMonitor",
    "MonitorOptions",
    "Queue",
]
