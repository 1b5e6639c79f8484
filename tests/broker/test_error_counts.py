"""`martlet_request_errors_total` counts every error in every answer: here those that a client reads, one by one."""

import dataclasses
import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from martlet.base.errors import error_code
from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import ApiKey, api_name
from martlet.wire.fetch import FetchRequest, parse_fetch_response
from martlet.wire.message_codec import decode
from martlet.wire.produce import parse_produce_response
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, create_topic, publish
from tests.broker.sample_requests import samples
from tests.broker.scrape import scrape, wait_until


def _read(key: ApiKey, version: int, body: bytes) -> Any:
    if key is ApiKey.PRODUCE:
        return parse_produce_response(body, version)
    if key is ApiKey.FETCH:
        return parse_fetch_response(body, version)
    name = key.name.lower()
    module = importlib.import_module(f"martlet.wire.messages.{name}")
    return decode(getattr(module, name.title().replace("_", "") + "Response"), version, body)


def _errors_in(value: object) -> Iterator[int]:
    if isinstance(value, list):
        for element in value:
            yield from _errors_in(element)
        return
    fields: dict[str, object] = {}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, tuple):
        fields = dict(zip(getattr(value, "_fields", map(str, range(len(value)))), value, strict=True))
    for name, content in fields.items():
        if name.endswith("error_code") and content:
            assert isinstance(content, int)
            yield content
        else:
            yield from _errors_in(content)


def _counted(broker: RunningBroker) -> dict[str, float]:
    name = "martlet_request_errors_total"
    return {series: count for series, count in scrape(broker.operations_url).items() if series.startswith(name)}


def _series(key: ApiKey, code: int) -> str:
    return f'martlet_request_errors_total{{api="{api_name(key)}",error="{error_code(code).name.lower()}"}}'


def test_every_error_of_every_api_in_every_version_is_counted_once(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker(auto_create_topics=False)
    seen: Counter[str] = Counter()
    refusing: set[ApiKey] = set()
    with RawClient(broker.bootstrap_servers) as client:
        for key, version, body in samples("no-such-topic"):
            client.send(key, version, body)
            codes = list(_errors_in(_read(key, version, client.receive(key, version)[1])))
            seen.update(_series(key, code) for code in codes)
            refusing.update({key} if codes else ())
    assert _counted(broker) == seen
    assert len(refusing) > 20
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.HEARTBEAT, ApiKey.DESCRIBE_CONFIGS} <= refusing


def test_errors_that_no_answer_tells_one_by_one_are_counted_too(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker()
    with RawClient(broker.bootstrap_servers) as client:
        topic = create_topic(client)
        session = client.fetch(FetchRequest(session_id=7, session_epoch=3, topics=[]))
        assert _counted(broker) == {_series(ApiKey.FETCH, session.error_code): 1}
        refused = publish(client, topic, batch_of(b"x"), partition=9)
        client.send_produce([(topic, None, [(9, batch_of(b"x"))])], 9, acks=0)
        wait_until(lambda: _counted(broker)[_series(ApiKey.PRODUCE, refused.error_code)] == 2, "the publish unanswered")
