"""The URL of a task store, read by workers and by the operator; no error shows a part that may be a password."""

import pytest

from activity_worker.wire.store_url import SslMode, StoreUrl, StoreUrlError, parse_store_url

CA = "-----BEGIN%20CERTIFICATE-----%0Aabc%0A-----END%20CERTIFICATE-----"


def parsed(rest: str) -> StoreUrl:
    """Return the parsed URL with this rest."""
    return parse_store_url(f"postgresql://{rest}")


def test_parts_of_a_url_are_decoded() -> None:
    url = parsed("us%40er:p%3Aa%2Fss@db.shop:5433/my%20tasks")

    assert (url.user, url.password, url.hosts, url.database) == ("us@er", "p:a/ss", (("db.shop", 5433),), "my tasks")
    assert url.shown == "db.shop:5433/my tasks"


def test_missing_parts_have_the_defaults_of_postgresql() -> None:
    url = parsed("db/tasks")

    assert (url.user, url.password, url.hosts, url.target) == (None, None, (("db", 5432),), None)
    assert url.tls.mode is SslMode.PREFER


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_usual_schemes_are_equivalent(scheme: str) -> None:
    assert parse_store_url(f"{scheme}://db/tasks") == parsed("db/tasks")


def test_several_hosts_select_the_writable_one() -> None:
    url = parsed("me@db1:1,[fd00::2]:2,db3/tasks")

    assert url.hosts == (("db1", 1), ("fd00::2", 2), ("db3", 5432))
    assert url.target == "read-write"
    assert url.shown == "db1:1,[fd00::2]:2,db3:5432/tasks"


def test_at_sign_in_a_password_does_not_lead_to_another_host() -> None:
    assert parsed("me@evil:1,x@good:2/tasks").hosts == (("good", 2),)


def test_options_are_those_of_libpq() -> None:
    url = parsed("db/tasks?sslmode=verify-full&sslrootcert=/etc/ca.crt&connect_timeout=3&options=-csearch_path%3Dshop")

    assert (url.tls.mode, url.tls.root_file, url.connect_seconds) == (SslMode.VERIFY_FULL, "/etc/ca.crt", 3.0)
    assert url.settings == (("options", "-csearch_path=shop"),)
    assert url.tls.files == {"sslrootcert": "/etc/ca.crt"}


def test_ca_may_be_in_the_url_itself() -> None:
    url = parsed(f"db/tasks?sslmode=verify-ca&ssl_ca_data={CA}")

    assert url.tls.root_text == "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"
    assert url.tls.files == {}


def test_repr_hides_the_password() -> None:
    assert "hunter2" not in repr(parsed("me:hunter2@db/tasks"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mysql://me:hunter2@db/tasks", "is none of a PostgreSQL database: expected postgresql://USER:PASSWORD@HOST"),
        ("hunter2", "is none of a PostgreSQL database"),
        ("postgresql://me:hunter2@db:x/tasks", "percent-encode"),
        ("postgresql://me:hunter2@db:99999/tasks", "percent-encode"),
        ("postgresql://me:hunter2@[::1/tasks", "cannot be read"),
        ("postgresql://me:hunter2@/tasks", "several hosts separated by commas"),
        ("postgresql:///tasks?password=hunter2", "several hosts separated by commas"),
        ("postgresql://me:hunter2@a..b/tasks", "several hosts separated by commas"),
        ("postgresql://me:1/hunter2@db/tasks", "has a # or a second @: percent-encode"),
        ("postgresql://me:1#hunter2@db/tasks", "has a # or a second @: percent-encode"),
        ("postgresql://me:1?hunter2@db/tasks", "has a # or a second @: percent-encode"),
        ("postgresql://db/tasks?password=hunter2", "the option password is not known, expected some of"),
        ("postgresql://db/tasks?host=hunter2", "the option host is not known"),
        ("postgresql://db/tasks?Hunter2!=hunter2", r"the option \? is not known"),
        (
            "postgresql://db/tasks?sslmode=hunter2",
            "the option sslmode: expected one of disable, allow, prefer, require",
        ),
        ("postgresql://db/tasks?connect_timeout=0", "expected seconds from 1 to 9999"),
        ("postgresql://db/tasks?target_session_attrs=standby", "expected one of any, read-write, primary: a store is"),
        ("postgresql://db/tasks?sslrootcert=", "the option sslrootcert: is empty, leave it out"),
        ("postgresql://db/tasks?sslmode=require&ssl_ca_data=hunter2", "expected certificates in PEM, percent-encoded"),
        (f"postgresql://db/tasks?ssl_ca_data={CA}", "the option ssl_ca_data needs sslmode to be one of require"),
        (f"postgresql://db/tasks?sslmode=require&sslrootcert=a&ssl_ca_data={CA}", "are both given, keep one of them"),
    ],
)
def test_error_of_an_invalid_url_names_the_fix_but_not_the_password(text: str, sentence: str) -> None:
    with pytest.raises(StoreUrlError, match=sentence) as refused:
        parse_store_url(text)

    assert "hunter2" not in str(refused.value).lower()
