"""The Amazon SWF fake as a process: `python -m activity_worker.testing.swf --port 4566 --domain shop`."""

from activity_worker.testing.fake_process import fake_parser, run_fake, tls_of
from activity_worker.testing.fake_swf import SwfFake
from activity_worker.testing.fake_swf_operations import SwfFakeSettings

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the fake as a process until SIGINT or SIGTERM."""
    parser = fake_parser("python -m activity_worker.testing.swf", __doc__)
    parser.add_argument("--domain", action="append", default=[], help="a domain that exists (may be repeated)")
    args = parser.parse_args(arguments)
    settings = SwfFakeSettings(poll_hold_seconds=args.poll_hold_seconds)
    tls = tls_of(parser, args)
    run_fake(SwfFake(settings=settings, domains=args.domain, host=args.host, port=args.port, tls=tls), "SWF")


if __name__ == "__main__":
    main()
