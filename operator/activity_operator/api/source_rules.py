"""CEL rules of the sources besides Step Functions, and their messages."""

from activity_operator.api.rules import (
    CONTROL,
    HOST,
    HTTP_URL,
    IPV6,
    PORT,
    SUBDOMAIN_PATTERN,
    Rule,
    literal,
    printable,
    quoting,
)

_HOST = rf"({HOST}|\[{IPV6}\])"
_HOST_AND_PORT = f"^{_HOST}:{PORT}$"

#: A PostgreSQL URL with an optional user and no password; options may follow, such as ?sslmode=require.
_STORE_URL = rf"^postgres(ql)?://([^:@/?#]+@)?{_HOST}(:{PORT})?/[^/?#]+(\?[^#]*)?$"

#: Characters that a name must not have. A colon is allowed: a child's queue is named PARENT:CHILD.
_NO_NAME = literal(r"[\s,\x00-\x1f\x7f-\x9f]")
_CONTROL = literal(CONTROL)
#: What a name of a domain or a task list must not have.
_NO_SWF_NAME = r"[:/|\x00-\x1f\x7f-\x9f]|^\s|\s$"
_NAME_FIX = "has a space, a comma or a control character; write it without"

#: Amazon SWF's rule for names of domains and task lists.
_SWF_NAME_FIX = "is no name in Amazon SWF; it has no :, /, |, control character or outer space, and is not arn"
SWF_NAME = (
    Rule(
        f"!self.matches({literal(_NO_SWF_NAME)}) && self != 'arn'",
        _SWF_NAME_FIX,
        printable("self", "", f" {_SWF_NAME_FIX}"),
    ),
)
REDIS = (
    Rule(
        "has(self.urlSecretRef) != has(self.address)",
        "exactly one of urlSecretRef and address must be set",
        "has(self.address) ? 'urlSecretRef and address are both set; keep exactly one of them' : "
        "'neither urlSecretRef nor address is set; set exactly one of them'",
    ),
)
ADDRESS = (
    Rule(
        f"self.matches({literal(_HOST_AND_PORT)})",
        "must be HOST:PORT, such as redis:6379; a URL with a password belongs into a Secret (urlSecretRef)",
    ),
)
REDIS_NAME = (Rule(f"!self.matches({_NO_NAME})", _NAME_FIX, printable("self", "", f" {_NAME_FIX}")),)
REDIS_NEXT_QUEUE = REDIS_NAME
REDIS_ATTRIBUTES = (
    Rule(
        f"self.all(name, !name.matches({_NO_NAME}))",
        f"a name {_NAME_FIX}",
        printable(f"self.filter(name, name.matches({_NO_NAME}))[0]", "", f" {_NAME_FIX}"),
    ),
)
TASK_STORE = (
    Rule(
        "has(self.urlSecretRef) != has(self.url)",
        "exactly one of urlSecretRef and url must be set",
        "has(self.url) ? 'urlSecretRef and url are both set; keep exactly one of them' : "
        "'neither urlSecretRef nor url is set; set exactly one of them'",
    ),
)
STORE_URL = (
    Rule(
        "!self.startsWith('sqlite')",
        "a pool's task store cannot be SQLite, which no other pod can reach; use postgresql://USER@HOST:PORT/DATABASE",
    ),
    Rule(
        f"self.startsWith('sqlite') || self.matches({literal(_STORE_URL)}) && !self.matches('(?i)password=')",
        "must look like postgresql://USER@HOST:PORT/DATABASE; a URL with a password belongs into a Secret "
        "(urlSecretRef)",
    ),
)
STORE_TASKS = (Rule(f"self.all(name, !name.matches({_CONTROL}))", "names of tasks must have no control characters"),)
PUSH_NEEDS_SECRETS = (
    "delivery Push needs signingSecretRef: without signed calls everybody who reaches a worker could run its handler"
)
NEEDS_PUSH = "needs delivery Push: set delivery to Push, or remove pushTlsSecretName"
TASKBROKER = (
    Rule(
        "!has(self.caSecretRef) || has(self.tls) && self.tls",
        "caSecretRef needs tls: set tls to true, or remove caSecretRef",
        field=".caSecretRef",
    ),
    Rule(
        "!has(self.delivery) || self.delivery != 'Push' || has(self.signingSecretRef)",
        PUSH_NEEDS_SECRETS,
        field=".delivery",
    ),
    Rule(
        "!has(self.pushTlsSecretName) || has(self.delivery) && self.delivery == 'Push'",
        f"pushTlsSecretName {NEEDS_PUSH}",
        field=".pushTlsSecretName",
    ),
)
_NO_ADDRESS_FIX = "is not HOST:PORT, such as taskbroker:50051"
BROKER_ADDRESSES = (
    Rule(
        f"self.all(address, address.matches({literal(_HOST_AND_PORT)}))",
        f"an address {_NO_ADDRESS_FIX}",
        printable(f"self.filter(address, !address.matches({literal(_HOST_AND_PORT)}))[0]", "", f" {_NO_ADDRESS_FIX}"),
    ),
)
_CONTROL_FIX = "has a control character; write it without"
BROKER_NAME = (Rule(f"!self.matches({_CONTROL})", f"the name {_CONTROL_FIX}"),)
SECRET_NAME = (
    quoting(
        f"self.matches({literal(SUBDOMAIN_PATTERN)})",
        "is not the name of a Secret; it has lower-case letters, digits, - and .",
    ),
)
SECRET_KEY = (
    quoting(
        "self.matches('^[-._a-zA-Z0-9]+$') && self != '.' && !self.startsWith('..')",
        "is not a key of a Secret; it has letters, digits, -, _ and .",
    ),
)
SERVER_URL = (
    Rule(
        f"{HTTP_URL} && !self.matches('[@?#]')",
        "serverUrl must be an http or https URL without credentials and query, such as "
        "http://prometheus.monitoring:9090",
    ),
)
