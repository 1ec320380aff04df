"""Operators for the election; signals block their main loop.

`python -m tests.faults.forked_election_operators [as-shipped]` is the process that operators are forked from. With
`as-shipped` the product's own constants stay. SIGUSR1 and SIGUSR2 block the main loop like a call that does not return:
other threads run, but no task of the loop does.
"""

import select
import signal
import sys

from tests.faults import forked_operators

#: Seconds for which SIGUSR1 blocks the loop: shorter than the renew deadline of `replicas.ELECTION`, so the leader
#: keeps its Lease.
SHORT_SECONDS = 1.5
#: Seconds for which SIGUSR2 blocks the loop: longer than any Lease.
LONG_SECONDS = 60.0
AS_SHIPPED = "as-shipped"


def _block(number: int, _frame: object) -> None:
    # `select` instead of `time.sleep`: libfaketime changes how `sleep` waits.
    select.select([], [], [], SHORT_SECONDS if number == signal.SIGUSR1 else LONG_SECONDS)


def main() -> None:
    """Fork operators until the input ends."""
    # The forked operators inherit the handlers.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, _block)
    if AS_SHIPPED in sys.argv:
        forked_operators.HASTE.clear()
    forked_operators.main()


if __name__ == "__main__":
    main()
