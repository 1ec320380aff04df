"""Names of hosts, before anybody asks a resolver for them."""


def is_resolvable(host: str) -> bool:
    """Whether a resolver can be asked for the name; it raises UnicodeError for an empty or overlong part (`a..b`)."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host
