"""A Redis URL contains all settings of a client, and no error shows its secrets."""

import itertools

import pytest
from redis.asyncio.connection import parse_url

from activity_worker.wire.redis_url import RedisTls, RedisUrl, RedisUrlError, TopologyKind, parse_redis_url

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("redis://h", RedisUrl(TopologyKind.SERVER, (("h", 6379),))),
        ("redis://u:p%40%2F@h:1/3", RedisUrl(TopologyKind.SERVER, (("h", 1),), "u", "p@/", 3)),
        ("redis://:p@[::1]:7", RedisUrl(TopologyKind.SERVER, (("::1", 7),), None, "p")),
        (
            "rediss://h?ssl_ca_certs=/ca.pem",
            RedisUrl(TopologyKind.SERVER, (("h", 6379),), tls=RedisTls(ca_certs="/ca.pem")),
        ),
        (
            "redis+sentinel://u:p@a,b:9/shop/2?sentinel_password=q",
            RedisUrl(TopologyKind.SENTINEL, (("a", 26379), ("b", 9)), "u", "p", 2, "shop", sentinel_password="q"),
        ),
        ("rediss+cluster://a:1,b", RedisUrl(TopologyKind.CLUSTER, (("a", 1), ("b", 6379)), tls=RedisTls())),
        (
            "redis://h?socket_timeout=1.5&socket_connect_timeout=2&client_name=w&db=4",
            RedisUrl(
                TopologyKind.SERVER,
                (("h", 6379),),
                database=4,
                client_name="w",
                connect_seconds=2.0,
                answer_seconds=1.5,
            ),
        ),
        (
            "rediss://h?ssl_cert_reqs=none&ssl_check_hostname=no&ssl_certfile=/c&ssl_keyfile=/k",
            RedisUrl(TopologyKind.SERVER, (("h", 6379),), tls=RedisTls(None, None, "/c", "/k", "none", False)),
        ),
    ],
)
def test_url_is_parsed(text: str, url: RedisUrl) -> None:
    assert parse_redis_url(text) == url


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"http://u:{SECRET}@h", "the scheme 'http'"),
        (f"{SECRET}", "expected redis://"),
        (f"redis://u:{SECRET}/x@h", "percent-encode"),
        (f"redis://u:{SECRET}@", "HOST:PORT"),
        (f"redis://u:{SECRET}@h:99999", "HOST:PORT"),
        (f"redis://u:{SECRET}@a..b", "HOST:PORT"),
        (f"redis://u:{SECRET}@{'a' * 64}", "HOST:PORT"),
        (f"redis://u:{SECRET}@a,b", "redis+sentinel or redis+cluster"),
        (f"redis+sentinel://u:{SECRET}@a,b", "the master's name"),
        (f"redis://:{SECRET}@h/first", "a number"),
        (f"redis+cluster://:{SECRET}@h/3", "only database 0"),
        (f"redis://:{SECRET}@h?ssl_ca_certs=/ca.pem", "say rediss"),
        (f"redis+cluster://:{SECRET}@h?ssl_keyfile=/k", "say rediss+cluster"),
        (f"redis://:{SECRET}@h?retries=3", "'retries' is not known"),
        (f"redis://:{SECRET}@h?socket_timeout=soon", "seconds from 0.1"),
        (f"rediss://:{SECRET}@h?ssl_cert_reqs=maybe", "required, optional or none"),
        (f"rediss://:{SECRET}@h?ssl_check_hostname=maybe", "true or false"),
        (f"redis://h?password={SECRET}&client_name=", "is empty"),
    ],
)
def test_error_of_an_invalid_url_names_the_fix_but_not_the_password(text: str, words: str) -> None:
    with pytest.raises(RedisUrlError) as refused:
        parse_redis_url(text)

    assert words.replace("the scheme", "scheme") in str(refused.value).replace("'s scheme", " scheme")
    assert SECRET not in str(refused.value)


def test_repr_and_shown_url_hide_passwords() -> None:
    url = parse_redis_url(f"rediss+sentinel://u:{SECRET}@[::1],b/shop/1?sentinel_password={SECRET}2")

    assert SECRET not in repr(url)
    assert url.shown == "rediss+sentinel://[::1]:26379,b:26379/shop/1"


@pytest.mark.parametrize(
    ("scheme", "who", "where", "path"),
    list(
        itertools.product(
            ["redis", "rediss"],
            ["", "u:p@", ":p@", "u:p%20%3A@", "us%2Fer:p@"],
            ["h", "h:7", "[::1]:7"],
            ["", "/", "/5"],
        )
    ),
)
def test_url_of_a_server_is_parsed_as_by_the_library(scheme: str, who: str, where: str, path: str) -> None:
    text = f"{scheme}://{who}{where}{path}"
    ours, of_library = parse_redis_url(text), parse_url(text)

    assert ours.hosts == ((of_library["host"], of_library.get("port", 6379)),)
    assert (ours.username, ours.password) == (of_library.get("username"), of_library.get("password"))
    assert ours.database == of_library.get("db", 0)
    assert (ours.tls is not None) == ("connection_class" in of_library)
