"""Errors are classified by what a caller should do."""

import pickle

import botocore.session
import pytest

from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError

#                    code                           status throttled retryable denied missing
KINDS = [
    ("ThrottlingException", 400, True, True, False, False),
    ("TooManyRequestsException", 429, True, True, False, False),
    ("RequestLimitExceeded", 503, True, True, False, False),
    ("ActivityWorkerLimitExceeded", 400, True, True, False, False),
    ("HTTP429", 429, True, True, False, False),
    ("InternalFailure", 500, False, True, False, False),
    ("ServiceUnavailable", 503, False, True, False, False),
    ("HTTP502", 502, False, True, False, False),
    ("AccessDeniedException", 400, False, False, True, False),
    ("ExpiredTokenException", 400, False, False, True, False),
    ("UnrecognizedClientException", 400, False, False, True, False),
    ("InvalidSignatureException", 400, False, False, True, False),
    ("HTTP403", 403, False, False, True, False),
    ("ActivityDoesNotExist", 400, False, False, False, True),
    ("TaskTimedOut", 400, False, False, False, False),
    ("TaskDoesNotExist", 400, False, False, False, False),
    ("InvalidToken", 400, False, False, False, False),
    ("InvalidArn", 400, False, False, False, False),
]


@pytest.mark.parametrize(("code", "status", "throttled", "retryable", "denied", "missing"), KINDS)
def test_code_and_status_classify_an_error(
    code: str, status: int, throttled: bool, retryable: bool, denied: bool, missing: bool
) -> None:
    error = WireError(code, "words", status)

    assert (throttled, retryable, denied, missing) == (error.throttled, error.retryable, error.denied, error.missing)


def test_missing_answer_is_retryable_and_missing_credentials_are_a_denial() -> None:
    assert EndpointUnreachableError("ReadTimeout", "words").retryable
    assert CredentialsMissingError("NoCredentials", "words").denied
    assert not CredentialsMissingError("NoCredentials", "words").retryable


def test_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(EndpointUnreachableError("ReadTimeout", "words", 0)))

    assert (EndpointUnreachableError, "ReadTimeout", "words") == (type(error), error.code, error.message)


def test_codes_of_activities_are_those_of_the_service_model() -> None:
    model = botocore.session.get_session().get_service_model("stepfunctions")
    known = {shape.name for name in model.operation_names for shape in model.operation_model(name).error_shapes}

    assert {
        "ActivityDoesNotExist",
        "ActivityWorkerLimitExceeded",
        "InvalidArn",
        "InvalidOutput",
        "InvalidToken",
        "KmsAccessDeniedException",
        "KmsThrottlingException",
        "TaskDoesNotExist",
        "TaskTimedOut",
    } <= known
