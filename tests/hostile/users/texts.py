"""PURE: texts that have broken software before: injections, odd characters, odd lengths."""

from hypothesis import strategies as st

#: Texts that attack the place where they are logged, shown, put into a label, a shell or YAML.
INJECTIONS = (
    'a\n{"level":"error","message":"forged"}',
    "a\r\nSet-Cookie: a=b",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "\x9b31m",
    "a\u2028b\u2029c\x85d",
    "abc\u202etxt.exe",
    "\x00",
    "\x7f\ufeff\uffff",
    'x",namespace="forged"} 1\nactivitypool_leader 7\n#',
    "$(POD_NAME)",
    "$$(POD_NAME)$(ACTIVITY_REPORT_TOKEN_FILE)",
    "`id`",
    "$(id >/tmp/owned)",
    "; rm -rf / #",
    "a: &a [*a]",
    "--- !!python/object/apply:os.system ['id']",
    "- a\n- b: c",
    '{"a": 1}',
    "{{ .Values.secret }}",
    "{% raw %}",
    "%s%n%d {0} {message}",
    "../../kube-system/secrets/x",
    "..",
    "'; DROP TABLE tasks; --",
    "\U0001f600",
    "é" * 40,
    "\u0130\u0131\u212a",
    " ",
    "",
)
#: Lengths around common limits.
LENGTHS = (1, 47, 48, 63, 64, 128, 253, 254, 512, 1025)
LONG = tuple("a" * length for length in LENGTHS)

#: Any text that JSON can carry, which excludes lone surrogates.
ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
HOSTILE = st.one_of(st.sampled_from(INJECTIONS), st.sampled_from(LONG), ANY_TEXT)
