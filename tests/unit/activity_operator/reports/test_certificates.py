"""Rotation of certificates: renewed before they expire, trusted before they are served."""

from dataclasses import replace

import pytest
from cryptography import x509

from activity_operator.reports.certificates import (
    AUTHORITY_SECONDS,
    DAY_SECONDS,
    OVERLAP_SECONDS,
    Material,
    RotationState,
    RotationStep,
    apply_rotation,
    plan_rotation,
    report_names,
    state_of,
)

NOW = 1_700_000_000.0
NAMES = report_names("activity-operator-reports", "activitypool-system")
SETTLED = RotationState(
    current_until=NOW + AUTHORITY_SECONDS,
    serving_until=NOW + 90 * DAY_SECONDS,
    serving_names=NAMES,
    serving_current=True,
)


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (RotationState(), (RotationStep.FOUND, RotationStep.ISSUE)),
        (SETTLED, ()),
        (replace(SETTLED, current_until=NOW - 1), (RotationStep.FOUND, RotationStep.ISSUE)),
        (replace(SETTLED, current_until=NOW + 200 * DAY_SECONDS), (RotationStep.ANNOUNCE,)),
        (replace(SETTLED, current_until=NOW + 200 * DAY_SECONDS, upcoming_since=NOW - 60), ()),
        (replace(SETTLED, upcoming_since=NOW - OVERLAP_SECONDS), (RotationStep.PROMOTE, RotationStep.ISSUE)),
        (replace(SETTLED, former_until=NOW + 60), ()),
        (replace(SETTLED, former_until=NOW - 60), (RotationStep.RETIRE,)),
        (replace(SETTLED, serving_until=NOW + 20 * DAY_SECONDS), (RotationStep.ISSUE,)),
        (replace(SETTLED, serving_names=("other",)), (RotationStep.ISSUE,)),
        (replace(SETTLED, serving_current=False), (RotationStep.ISSUE,)),
        (replace(SETTLED, serving_until=None), (RotationStep.ISSUE,)),
    ],
)
def test_rotation_plan_names_the_steps_that_are_due(state: RotationState, steps: tuple[RotationStep, ...]) -> None:
    assert plan_rotation(NOW, state, NAMES) == steps


def test_ten_years_of_rotation_serve_only_authorities_trusted_for_a_day() -> None:
    material = Material()
    trusted_since: dict[str, int] = {}
    for day in range(3650):
        now = NOW + day * DAY_SECONDS
        steps = plan_rotation(now, state_of(material), NAMES)
        material = apply_rotation(steps, material, NAMES, now) if steps else material
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
    first = apply_rotation((RotationStep.FOUND, RotationStep.ISSUE, RotationStep.ANNOUNCE), Material(), NAMES, NOW)
    promoted = apply_rotation((RotationStep.PROMOTE, RotationStep.ISSUE), first, NAMES, NOW + DAY_SECONDS)

    assert first.current is not None
    assert first.current.certificate in promoted.bundle
    assert first.upcoming == promoted.current
    assert plan_rotation(NOW + 1.5 * DAY_SECONDS, state_of(promoted), NAMES) == ()
    assert plan_rotation(NOW + 2 * DAY_SECONDS, state_of(promoted), NAMES) == (RotationStep.RETIRE,)


def test_authority_signs_servers_only_and_a_server_signs_nothing() -> None:
    material = apply_rotation((RotationStep.FOUND, RotationStep.ISSUE), Material(), NAMES, NOW)
    assert material.current is not None
    assert material.serving is not None
    authority = x509.load_pem_x509_certificate(material.current.certificate.encode())
    serving = x509.load_pem_x509_certificate(material.serving.certificate.encode())

    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.value.ca, limits.value.path_length) == (True, 0)
    assert not serving.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert set(state_of(material).serving_names) == set(NAMES)


def test_repr_hides_private_keys() -> None:
    material = apply_rotation((RotationStep.FOUND, RotationStep.ISSUE), Material(), NAMES, NOW)

    assert "PRIVATE" not in repr(material)
