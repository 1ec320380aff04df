"""Every lie that a report can hold: each place in its JSON times each wrong value, as raw text.

Raw text, because a lie need not be JSON: NaN, numbers without end, a key twice, half a surrogate, bytes that are no
text.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

#: A report with every field; a lie changes one place or a few.
WHOLE: dict[str, Any] = {
    "protocol": 1,
    "namespace": "",
    "pool": "",
    "podName": "",
    "podUid": "",
    "incarnation": "first",
    "sequence": 1,
    "state": "running",
    "slots": 4,
    "busy": 1,
    "openPolls": 1,
    "idleSeconds": 1.5,
    "leases": [{"id": "0" * 32, "ageSeconds": 1.0}],
    "counters": {
        "received": 1, "succeeded": 1, "failed": 0, "taskHeartbeatFailures": 0, "emptyPolls": 0, "busySeconds": 1.0,
    },
    "events": [{"sequence": 1, "name": "worker:error", "at": 1.0, "message": "a message"}],
    "droppedEvents": 0,
    "claims": ["0" * 32],
    "released": ["0" * 32],
    "exit": {"code": 1, "error": "an error"},
    "pollTrouble": {"fault": "other", "code": "a code", "message": "a message"},
    "runtime": "1.0",
}  # fmt: skip

Path = tuple[str | int, ...]

#: Texts that attack a terminal, a log, a shell, YAML, a metrics page or a JSON reader.
TEXTS = (
    "",
    "\n2026-01-01 00:00:00,000 ERROR   activity_operator: forged line",
    "\r\x1b[2K\x1b[31mred\x1b[0m",
    "\x9b31mC1",
    "\x00",
    "\x7f\b\b\b",
    "\u202egnp.exe",
    "\u2028line\u2029paragraph\x85next",
    '"} 1\nactivitypool_leader 0\n# ',
    "'; DROP TABLE pools; --",
    "$(reboot)`reboot`|reboot",
    "- yaml: !!python/object/apply:os.system ['reboot']",
    "<script>alert(1)</script>",
    "%s%n{0}{self}${jndi:ldap://x/}",
    "../../../../etc/passwd",
    "\U0001f600" * 63,
    "x" * 4096,
    "\u0301" * 200,
)
#: JSON fragments, valid and invalid.
FRAGMENTS = (
    *(json.dumps(text).encode() for text in TEXTS),
    json.dumps("\x1b[31m\u202e\x00\n", ensure_ascii=False).encode(),
    b'"\\ud800"', b'"\\udfff\\ud800"', b'"\xed\xa0\x80"', b'"\xff\xfe\xc0\x80"', b'"raw\nnewline"', b'"\x1b[31m"',
    b"null", b"true", b"false", b"-0", b"-1", b"-1e-9", b"0", b"0.5", b"1.0", b"1e0", b"1001", b"2147483648",
    b"9007199254740991", b"9007199254740992", b"1e12", b"1e308", b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity",
    b"9" * 4000, b"1" + b"0" * 400, b"0x10", b"01", b"+1", b"'x'", b"",
    b"[]", b"{}", b"[null]", b"[[]]", b'[{"id":1}]', b'{"a":{"b":[]}}', b"[" * 4000, b'{"a":' * 1000,
    b"[" * 900 + b"]" * 900, b"[" + b"0," * 1100 + b"0]", b"[" + b'"x",' * 900 + b'"x"]', b"[" + b"{}," * 101 + b"{}]",
    b'"drained"', b'"stopped"', b'"stopping"', b'"worker:stopped"', b'"worker:running"', b'"OOMKilled"', b'"denied"',
)  # fmt: skip
#: Values as large as a report may be. They are tried at a few places only, because the bytes of a pod are limited.
HUGE = (
    b"[" * 100_000,
    b'{"a":' * 40_000,
    b"9" * 200_000,
    b'"' + b"x" * 200_000 + b'"',
    b'"' + b"\\u0000" * 30_000 + b'"',
)
HUGE_PLACES: tuple[Path, ...] = (("podUid",), ("slots",), ("events",))


def places(value: Any = None, above: Path = ()) -> Iterator[Path]:
    """Return the path of everything in a report, containers included."""
    value = WHOLE if value is None else value
    if above:
        yield above
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from (
            places(item if item != {} else None, (*above, key)) if isinstance(item, dict | list) else [(*above, key)]
        )


@dataclass(frozen=True)
class Lie:
    """A report of `base` with raw text at some paths; `twice` are keys that are repeated."""

    instead: tuple[tuple[Path, bytes], ...]
    twice: tuple[tuple[str, bytes], ...] = field(default=())
    #: Added to the sequence of an honest report.
    sequence: int | None = None
    incarnation: str = "first"

    def says(self, key: str) -> bool:
        """Whether it lies about something under this key of the report."""
        return any(path[0] == key for path, _ in self.instead)

    def body(self, base: dict[str, Any]) -> bytes:
        """Return the body of the report.

        `exit` and `pollTrouble` are left out unless it lies about them; events are always new.
        """
        report = WHOLE | base | {"incarnation": self.incarnation}
        report |= {key: None for key in ("exit", "pollTrouble") if not self.says(key)}
        report["events"] = [WHOLE["events"][0] | {"sequence": base["sequence"]}]
        if self.sequence is not None:
            report["sequence"] = self.sequence
        return _text(report, dict(self.instead), (), self.twice)

    def fields(self) -> set[str]:
        """Return the names of which a refusal must contain at least one."""
        tops = {str(path[0]) for path, _ in self.instead} | {key for key, _ in self.twice}
        tops |= {"sequence"} if self.sequence is not None else set()
        named = {str(key) for path in places() if path[0] in tops for key in path}
        # Invalid JSON, and a report that is refused as a whole, are named by these.
        return named | {"the body", "report", "slots, busy", "namespace, pool"}

    def __repr__(self) -> str:
        changes = ", ".join(f"{'.'.join(map(str, path))}={raw[:60]!r}" for path, raw in (*self.instead,))
        return (
            f"Lie({changes}; twice={[(key, raw[:60]) for key, raw in self.twice]}; {self.sequence}, {self.incarnation})"
        )


def _text(value: Any, instead: dict[Path, bytes], at: Path, twice: tuple[tuple[str, bytes], ...] = ()) -> bytes:
    if at in instead:
        return instead[at]
    if isinstance(value, dict):
        pairs = [json.dumps(key).encode() + b":" + _text(item, instead, (*at, key)) for key, item in value.items()]
        pairs += [json.dumps(key).encode() + b":" + raw for key, raw in twice]
        return b"{" + b",".join(pairs) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(_text(item, instead, (*at, number)) for number, item in enumerate(value)) + b"]"
    return json.dumps(value).encode()


def single() -> Iterator[Lie]:
    """Yield every lie in one place. Lies about `exit` come last, because a worker whose start failed is replaced."""
    for path in sorted(places(), key=lambda path: path[0] == "exit"):
        for number, raw in enumerate(FRAGMENTS):
            # `exit` in the report of a new incarnation means a failed start.
            yield Lie(((path, raw),), incarnation=f"start {number}" if path[0] == "exit" else "first")
    for path in HUGE_PLACES:
        yield from (Lie(((path, raw),)) for raw in HUGE)
    for key in WHOLE:
        yield Lie((), ((key, b"null"),))
        yield Lie((), ((key, b"1"),))


def several() -> st.SearchStrategy[Lie]:
    """Return lies in up to four places at once, with sequences and incarnations of earlier reports."""
    raws = st.one_of(
        st.sampled_from(FRAGMENTS),
        st.integers().map(lambda number: str(number).encode()),
        st.floats().map(lambda number: json.dumps(number).encode()),
        st.text(max_size=40).map(lambda text: json.dumps(text).encode()),
        st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=8).map(
            lambda value: json.dumps(value).encode()
        ),
        st.binary(max_size=12),
    )
    paths = st.sampled_from([path for path in places() if path[0] != "exit"])
    keys = st.sampled_from([key for key in WHOLE if key != "exit"])
    return st.builds(
        Lie,
        st.lists(st.tuples(paths, raws), max_size=4, unique_by=lambda pair: pair[0]).map(tuple),
        st.lists(st.tuples(keys, raws), max_size=2).map(tuple),
        sequence=st.none() | st.integers(0, 2**53),
        incarnation=st.sampled_from(("first", "second", "third", "fourth", "fifth", "sixth", "first ", "x" * 64)),
    )
