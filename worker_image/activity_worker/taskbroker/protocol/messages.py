"""The message classes of the protocol, and of the calls for producers, for counts and for workers that register.

They live in a pool of descriptors of their own: a process may import the published `sentry_protos` as well, whose names
are the same, and the default pool refuses two files with the same names.
"""

from importlib.resources import files
from typing import Any, Final

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from activity_worker.taskbroker.protocol.proto_parser import parse_proto

PACKAGE: Final = "sentry_protos.taskbroker.v1"
CONSUMER_SERVICE: Final = f"{PACKAGE}.ConsumerService"
WORKER_SERVICE: Final = f"{PACKAGE}.WorkerService"
PRODUCER_PACKAGE: Final = "activitypool.taskbroker.v1"
PRODUCER_SERVICE: Final = f"{PRODUCER_PACKAGE}.ProducerService"
BACKLOG_SERVICE: Final = f"{PRODUCER_PACKAGE}.BacklogService"
EXCHANGE_SERVICE: Final = f"{PRODUCER_PACKAGE}.ExchangeService"
WORKER_MAP_SERVICE: Final = f"{PRODUCER_PACKAGE}.WorkerMapService"

_POOL: Final = DescriptorPool()


def _load() -> None:
    timestamp = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    _POOL.Add(timestamp)
    for name in ("taskbroker.proto", "producer.proto", "backlog.proto", "exchange.proto", "workers.proto"):
        _POOL.Add(parse_proto(name, files(__package__).joinpath(name).read_text(encoding="utf-8")))


def _message(name: str, package: str = PACKAGE) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{package}.{name}"))


_load()

RetryStateMessage: Final = _message("RetryState")
TaskActivation: Final = _message("TaskActivation")
GetTaskRequest: Final = _message("GetTaskRequest")
GetTaskResponse: Final = _message("GetTaskResponse")
SetTaskStatusRequest: Final = _message("SetTaskStatusRequest")
SetTaskStatusResponse: Final = _message("SetTaskStatusResponse")
SetBatchActivationStatusRequest: Final = _message("SetBatchActivationStatusRequest")
SetBatchActivationStatusResponse: Final = _message("SetBatchActivationStatusResponse")
PushTaskRequest: Final = _message("PushTaskRequest")
PushTaskResponse: Final = _message("PushTaskResponse")
EnqueueRequest: Final = _message("EnqueueRequest", PRODUCER_PACKAGE)
EnqueueResponse: Final = _message("EnqueueResponse", PRODUCER_PACKAGE)
CountTasksRequest: Final = _message("CountTasksRequest", PRODUCER_PACKAGE)
CountTasksResponse: Final = _message("CountTasksResponse", PRODUCER_PACKAGE)
ExchangeTasksRequest: Final = _message("ExchangeTasksRequest", PRODUCER_PACKAGE)
ExchangeTasksResponse: Final = _message("ExchangeTasksResponse", PRODUCER_PACKAGE)
RegisterWorkerRequest: Final = _message("RegisterWorkerRequest", PRODUCER_PACKAGE)
RegisterWorkerResponse: Final = _message("RegisterWorkerResponse", PRODUCER_PACKAGE)
