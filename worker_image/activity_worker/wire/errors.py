"""What can go wrong on the wire, sorted by what the caller should do about it.

Codes are the service's own words (`TaskTimedOut`, `ThrottlingException`, ...). Messages are the service's too: they
name resources and actions, never tokens or payloads.
"""

THROTTLED = frozenset(
    {
        "ActivityWorkerLimitExceeded",
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "KmsThrottlingException",
        "LimitExceededException",
        "LimitExceededFault",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttled",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidIdentityToken",
        "InvalidSignatureException",
        "KmsAccessDeniedException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OperationNotPermittedFault",
        "OptInRequired",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
MISSING = frozenset(
    {
        "ActivityDoesNotExist",
        "ExecutionDoesNotExist",
        "ResourceNotFound",
        "ResourceNotFoundException",
        "StateMachineDoesNotExist",
        "UnknownResourceFault",
    }
)
#: Answers to a request whose date or signature the service does not believe; a wrong clock is the usual reason.
SKEWED = frozenset(
    {
        "AuthFailure",
        "InvalidSignatureException",
        "RequestExpired",
        "RequestInTheFuture",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
#: Answers after which the credentials in hand will not work again.
SPENT_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)
#: Transient answers that do not come with a 5xx status.
_TRANSIENT = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    }
)


class WireError(Exception):
    """A call that did not succeed.

    `code` is the service's error code, `message` its words, `status` the HTTP status (0: there was no answer).
    """

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    def __reduce__(self) -> tuple[type["WireError"], tuple[str, str, int]]:
        return type(self), (self.code, self.message, self.status)

    @property
    def throttled(self) -> bool:
        """Whether the service asks for fewer calls: wait longer, and do not count it as a failure."""
        return self.code in THROTTLED or self.status == 429

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later by itself: throttling, no answer, or a fault of the service."""
        return self.throttled or self.status >= 500 or self.code in _TRANSIENT

    @property
    def denied(self) -> bool:
        """Whether who we are is the reason: no or wrong credentials, or no permission."""
        return self.code in DENIED or self.status in {401, 403}

    @property
    def missing(self) -> bool:
        """Whether the thing we asked about does not exist."""
        return self.code in MISSING


class EndpointUnreachableError(WireError):
    """No answer: the name does not resolve, the port is closed, TLS fails, the connection broke, or time ran out.

    `code` is `EndpointUnreachable` or `ReadTimeout`. The service may or may not have acted on the request.
    """

    @property
    def retryable(self) -> bool:
        """Always: what is unreachable now may be reachable later."""
        return True


class CredentialsMissingError(WireError):
    """There are no usable credentials: the chain found none, or the role could not be assumed.

    `code` is `NoCredentials`, or the code with which the security token service refused.
    """

    @property
    def denied(self) -> bool:
        """Always: nothing could be signed."""
        return True
