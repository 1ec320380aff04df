"""Operators for the election, whose main loop a signal blocks.

`python -m tests.faults.election_zygote [as-shipped]` is the zygote; `as-shipped` leaves the product's own constants as
they are. SIGUSR1 and SIGUSR2 block the main loop as a call that does not return would: the interpreter turns, other
threads run, no task does.
"""

import select
import signal
import sys

from tests.faults import zygote

#: Seconds for which SIGUSR1 blocks the loop: shorter than the renew deadline of `replicas.ELECTION`, so that a leader
#: comes through it.
SHORT_SECONDS = 1.5
#: Seconds for which SIGUSR2 does: longer than any Lease.
LONG_SECONDS = 60.0
AS_SHIPPED = "as-shipped"


def _block(number: int, _frame: object) -> None:
    # Not a sleep: what a library makes of a faked clock there is not what is tested.
    select.select([], [], [], SHORT_SECONDS if number == signal.SIGUSR1 else LONG_SECONDS)


def main() -> None:
    """Be the zygote."""
    # Inherited by what is forked.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, _block)
    if AS_SHIPPED in sys.argv:
        zygote.HASTE.clear()
    zygote.main()


if __name__ == "__main__":
    main()
