"""Requests that are asked again, and secrets that stay where they are: what every dialect has from the service."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from unspool_server.errors import ModelError, ProviderRejected, ProviderUnavailable, StreamCut
from unspool_server.model.backoff import LONGEST_ASKED_DELAY_S, asked_delay_s, delay_s
from unspool_server.model.contract import ResponseDone
from unspool_server.model.failures import response_failure
from unspool_server.model.provider import HttpProvider
from unspool_server.model.responses import ResponsesDialect
from unspool_server.model.service import ModelService

from tests.model.chat_service import Answer, ChatService, Refusal, chunk, collect, provider_for, serving

GOOD: Answer = [chunk("stop", content="x"), "[DONE]"]
LIMITED = {"error": {"message": "slow down"}}


@pytest.fixture
async def service() -> AsyncIterator[ChatService]:
    async with serving() as running:
        yield running


def patient(service: ChatService, waits: list[float]) -> HttpProvider:
    """A provider that notes how long it would have waited."""

    async def note(delay_s: float) -> None:
        waits.append(delay_s)

    provider = provider_for(service, request_max_retries=3)
    provider._service._sleep = note  # the seam of time
    return provider


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"retry-after": "7"}, [7.0]),
        ({"retry-after-ms": "1500", "retry-after": "9"}, [1.5]),
        ({"retry-after": "86400"}, [LONGEST_ASKED_DELAY_S]),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, [0.0]),
    ],
)
async def test_a_service_that_is_busy_is_asked_again_when_it_says(
    service: ChatService, headers: dict[str, str], waits: list[float]
) -> None:
    noted: list[float] = []
    provider = patient(service, noted)
    service.answers += [Refusal(429, LIMITED, headers), GOOD]

    events = await collect(provider)
    await provider.close()

    assert isinstance(events[-1], ResponseDone)
    assert noted == waits


@pytest.mark.parametrize("headers", [{}, {"retry-after": "soon"}])
async def test_one_that_does_not_say_when_is_asked_after_growing_waits(
    service: ChatService, headers: dict[str, str]
) -> None:
    noted: list[float] = []
    provider = patient(service, noted)
    service.answers += [Refusal(status, LIMITED, headers) for status in (429, 503, 408)] + [GOOD]

    await collect(provider)
    await provider.close()

    assert [0.9 <= wait / (0.2 * 2**number) <= 1.1 for number, wait in enumerate(noted)] == [True] * 3


async def test_a_limit_that_does_not_pass_fails_in_the_reference_words(service: ChatService) -> None:
    provider = patient(service, [])
    service.answers += [Refusal(429, LIMITED)] * 4

    with pytest.raises(ProviderUnavailable) as caught:
        await collect(provider)
    await provider.close()

    error: ModelError = caught.value
    assert error.message == "exceeded retry limit, last status: 429 Too Many Requests"
    assert error.info == {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(400, {"error": {"message": "no"}}),
        Refusal(401, {}),
        Refusal(404, {}),
        Refusal(422, {}),
        Refusal(429, {"error": {"code": "insufficient_quota", "message": "pay"}}),
    ],
)
async def test_what_waiting_cannot_mend_is_not_asked_again(service: ChatService, refusal: Refusal) -> None:
    provider = patient(service, [])
    service.answers.append(refusal)

    with pytest.raises(ProviderRejected):
        await collect(provider)
    await provider.close()

    assert len(service.bodies) == 1


async def test_a_wait_ends_at_once_when_nobody_waits_any_more(service: ChatService) -> None:
    began = asyncio.Event()

    async def forever(_delay_s: float) -> None:
        began.set()
        await asyncio.Event().wait()

    provider = provider_for(service, request_max_retries=1)
    provider._service._sleep = forever
    service.answers.append(Refusal(503, {}))
    async with asyncio.timeout(10):
        asking = asyncio.create_task(collect(provider))
        await began.wait()
        asking.cancel()
        await asyncio.wait([asking])
    await provider.close()

    assert asking.cancelled()


def test_waits_are_bounded_however_many_tries_are_configured() -> None:
    assert delay_s(100) <= 11.0
    assert delay_s(3, -5.0) == 0.0
    assert asked_delay_s({}) is None


def test_a_limit_told_within_a_stream_says_how_long_to_wait() -> None:
    seconds = response_failure("rate_limit_exceeded", "Please try again in 1.5s.")
    millis = response_failure("rate_limit_exceeded", "Please try again in 20ms.")

    assert isinstance(seconds, StreamCut) and seconds.retry_after_s == 1.5
    assert millis.retry_after_s == 0.02


SECRETS = {
    "env_key": "KEY",
    "http_headers": {"x-team": "header-secret"},
    "env_http_headers": {"authorization": "AUTH"},
    "query_params": {"api-version": "1", "code": "query-secret"},
}
ENVIRON = {"KEY": "sk-very-secret", "AUTH": "Bearer other-secret"}
LEAK = "bad key sk-very-secret, header-secret, other-secret, query-secret"


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503, 0])
@pytest.mark.parametrize("wire_api", ["chat", "responses"])
async def test_no_key_header_or_query_is_in_an_error_although_the_service_repeats_it(
    service: ChatService, status: int, wire_api: str
) -> None:
    provider = provider_for(service, ENVIRON, **SECRETS)
    if wire_api == "responses":
        provider = HttpProvider(ModelService(provider._service.config, ENVIRON), ResponsesDialect(), model="m")
    failed = {"type": "response.failed", "response": {"error": {"message": LEAK}}, "error": {"message": LEAK}}
    service.answers.append(Refusal(status, {"error": {"message": LEAK}}) if status else [failed])

    with pytest.raises(ModelError) as caught:
        await collect(provider)
    await provider.close()

    shown = f"{caught.value.message} {caught.value.detail} {caught.value} {caught.value.info}"
    assert "secret" not in shown
    assert "sk-very-secret" in service.heads[0] or "other-secret" in service.heads[0]
