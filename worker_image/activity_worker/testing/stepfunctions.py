"""The Step Functions fake as a process: `python -m activity_worker.testing.stepfunctions --port 4566`."""

from activity_worker.testing.fake_clock import VirtualClock
from activity_worker.testing.fake_faults import Fault
from activity_worker.testing.fake_operations import FakeSettings
from activity_worker.testing.fake_process import fake_parser, run_fake, tls_of
from activity_worker.testing.fake_server import StepFunctionsFake
from activity_worker.testing.fake_tasks import FakeTask

__all__ = ["FakeSettings", "FakeTask", "Fault", "StepFunctionsFake", "VirtualClock", "main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the fake as a process until SIGINT or SIGTERM."""
    parser = fake_parser("python -m activity_worker.testing.stepfunctions", __doc__)
    parser.add_argument("--region", default="us-east-1", help="region of the ARNs it makes (default: %(default)s)")
    parser.add_argument("--account", default="123456789012", help="account of the ARNs it makes (default: %(default)s)")
    args = parser.parse_args(arguments)
    tls = tls_of(parser, args)
    settings = FakeSettings(poll_hold_seconds=args.poll_hold_seconds, region=args.region, account=args.account)
    run_fake(StepFunctionsFake(settings=settings, host=args.host, port=args.port, tls=tls), "Step Functions")


if __name__ == "__main__":
    main()
