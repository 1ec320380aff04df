"""The kernel settings that a kubelet demands. In the bare root they are read-only, so that they are set before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: A kubelet sets these at its start and ends when it cannot (pkg/util/sysctl and the container manager of Kubernetes).
KUBELET = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@contextmanager
def as_a_kubelet_demands(settings: Path = Path("/proc/sys")) -> Iterator[None]:
    """Set this machine's kernel as a kubelet demands, and restore it at the end."""
    before = {name: (settings / name).read_text() for name in KUBELET if (settings / name).exists()}
    changed = {name: value for name, value in before.items() if value.strip() != KUBELET[name]}
    try:
        for name in changed:
            (settings / name).write_text(KUBELET[name])
        yield
    finally:
        for name, value in changed.items():
            (settings / name).write_text(value)
