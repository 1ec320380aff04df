"""Rotation of certificates: renewed before they expire, trusted before they are served."""

from dataclasses import replace

import pytest
from cryptography import x509

from activity_operator.workers.certificates import (
    AUTHORITY_SECONDS,
    DAY_SECONDS,
    OVERLAP_SECONDS,
    Material,
    State,
    Step,
    carry_out,
    plan_rotation,
    report_names,
    state_of,
)

NOW = 1_700_000_000.0
NAMES = report_names("activity-operator-reports", "activitypool-system")
SETTLED = State(
    current_until=NOW + AUTHORITY_SECONDS,
    serving_until=NOW + 90 * DAY_SECONDS,
    serving_names=NAMES,
    serving_current=True,
)


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (State(), (Step.FOUND, Step.ISSUE)),
        (SETTLED, ()),
        (replace(SETTLED, current_until=NOW - 1), (Step.FOUND, Step.ISSUE)),
        (replace(SETTLED, current_until=NOW + 200 * DAY_SECONDS), (Step.ANNOUNCE,)),
        (replace(SETTLED, current_until=NOW + 200 * DAY_SECONDS, upcoming_since=NOW - 60), ()),
        (replace(SETTLED, upcoming_since=NOW - OVERLAP_SECONDS), (Step.PROMOTE, Step.ISSUE)),
        (replace(SETTLED, former_until=NOW + 60), ()),
        (replace(SETTLED, former_until=NOW - 60), (Step.RETIRE,)),
        (replace(SETTLED, serving_until=NOW + 20 * DAY_SECONDS), (Step.ISSUE,)),
        (replace(SETTLED, serving_names=("other",)), (Step.ISSUE,)),
        (replace(SETTLED, serving_current=False), (Step.ISSUE,)),
        (replace(SETTLED, serving_until=None), (Step.ISSUE,)),
    ],
)
def test_rotation_plan_names_the_steps_that_are_due(state: State, steps: tuple[Step, ...]) -> None:
    assert plan_rotation(NOW, state, NAMES) == steps


def test_ten_years_of_rotation_serve_only_authorities_trusted_for_a_day() -> None:
    material = Material()
    trusted_since: dict[str, int] = {}
    for day in range(3650):
        now = NOW + day * DAY_SECONDS
        steps = plan_rotation(now, state_of(material), NAMES)
        material = carry_out(steps, material, NAMES, now) if steps else material
        for certificate in x509.load_pem_x509_certificates(material.bundle.encode()):
            trusted_since.setdefault(certificate.subject.rfc4514_string(), day)
        assert material.serving is not None
        served = x509.load_pem_x509_certificate(material.serving.certificate.encode())
        assert served.not_valid_after_utc.timestamp() > now
        issuer = served.issuer.rfc4514_string()
        assert trusted_since[issuer] == 0 or trusted_since[issuer] < day
        assert issuer in {each.subject.rfc4514_string() for each in _bundle(material)}

    assert len(trusted_since) > 5


def _bundle(material: Material) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(material.bundle.encode())


def test_former_authority_stays_trusted_for_a_day() -> None:
    first = carry_out((Step.FOUND, Step.ISSUE, Step.ANNOUNCE), Material(), NAMES, NOW)
    promoted = carry_out((Step.PROMOTE, Step.ISSUE), first, NAMES, NOW + DAY_SECONDS)

    assert first.current is not None
    assert first.current.certificate in promoted.bundle
    assert first.upcoming == promoted.current
    assert plan_rotation(NOW + 1.5 * DAY_SECONDS, state_of(promoted), NAMES) == ()
    assert plan_rotation(NOW + 2 * DAY_SECONDS, state_of(promoted), NAMES) == (Step.RETIRE,)


def test_authority_signs_servers_only_and_a_server_signs_nothing() -> None:
    material = carry_out((Step.FOUND, Step.ISSUE), Material(), NAMES, NOW)
    assert material.current is not None
    assert material.serving is not None
    authority = x509.load_pem_x509_certificate(material.current.certificate.encode())
    serving = x509.load_pem_x509_certificate(material.serving.certificate.encode())

    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.value.ca, limits.value.path_length) == (True, 0)
    assert not serving.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert set(state_of(material).serving_names) == set(NAMES)


def test_repr_hides_private_keys() -> None:
    material = carry_out((Step.FOUND, Step.ISSUE), Material(), NAMES, NOW)

    assert "PRIVATE" not in repr(material)
