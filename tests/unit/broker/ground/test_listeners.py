"""Named listeners as the settings describe them, and what is refused."""

import pytest

from martlet.base.addresses import Address
from martlet.broker.ground.listeners import ListenerOptions, ListenerProtocol, Listeners, configured_listeners
from martlet.broker.ground.settings import BrokerSettings

TWO = "clients=plain://0.0.0.0:9092, brokers=plain://10.0.0.1:9094"


def listeners(**settings: str) -> Listeners:
    return configured_listeners(BrokerSettings(**settings))  # type: ignore[arg-type]


def refusal(**settings: str) -> str:
    with pytest.raises(ValueError, match=":") as refused:
        listeners(**settings)
    return str(refused.value)


def test_without_the_setting_there_is_one_listener_for_clients_and_brokers() -> None:
    assert listeners(kafka="h:1") == Listeners((ListenerOptions("kafka", Address("h", 1)),), "kafka")
    (one,) = listeners(advertised="one.example:9092").all
    assert one.advertised == Address("one.example", 9092)
    assert one.protocol is ListenerProtocol.PLAIN


def test_several_listeners_have_names_and_the_first_serves_brokers_unless_another_is_named() -> None:
    found = listeners(listeners=TWO, advertised="clients=one.example:9092")
    assert [(one.name, str(one.address)) for one in found.all] == [
        ("clients", "0.0.0.0:9092"),
        ("brokers", "10.0.0.1:9094"),
    ]
    assert [one.advertised for one in found.all] == [Address("one.example", 9092), None]
    assert found.for_brokers == "clients"
    assert listeners(listeners=TWO, broker_listener="brokers").for_brokers == "brokers"


def test_any_free_port_may_be_asked_for_several_times() -> None:
    assert len(listeners(listeners="a=plain://h:0,b=plain://h:0").all) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("plain://h:1", "listeners: 'plain://h:1' is not NAME=PROTOCOL://HOST:PORT"),
        ("a=h:1", "listeners: 'a=h:1' is not NAME=PROTOCOL://HOST:PORT"),
        ("=plain://h:1", "listeners: '' cannot be a listener's name; allowed are letters"),
        ("1=plain://h:1", "listeners: '1' cannot be a listener's name"),
        ("a=ssl://h:1", "listeners: there is no protocol 'ssl'; allowed are plain, tls, sasl_plain, sasl_tls"),
        ("a=plain://h:x", "listeners: 'h:x' has no valid port"),
        ("a=plain://h:1,A=plain://h:2", "listeners: 'A' is there twice"),
        ("a=plain://h:1,b=plain://h:1", "listeners: h:1 is there twice"),
        (",", "listeners: there is none; write NAME=PROTOCOL://HOST:PORT"),
    ],
)
def test_a_listener_that_cannot_be_is_refused_with_what_is_allowed(text: str, sentence: str) -> None:
    assert refusal(listeners=text).startswith(sentence)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"broker_listener": "x"}, "broker_listener: there is no listener 'x'; there is clients, brokers"),
        ({"advertised": "h:1"}, "advertised: 'h:1' does not say of which listener; write NAME=h:1"),
        ({"advertised": "x=h:1"}, "advertised: there is no listener 'x'; there is clients, brokers"),
        ({"advertised": "clients=h:1,clients=h:2"}, "advertised: the listener 'clients' is there twice"),
        ({"advertised": "clients=:1"}, "advertised: ':1' has no host"),
    ],
)
def test_what_is_said_of_a_listener_must_be_of_one_that_there_is(settings: dict[str, str], sentence: str) -> None:
    assert refusal(listeners=TWO, **settings).startswith(sentence)


def test_only_protocols_with_sasl_ask_clients_who_they_are() -> None:
    assert [one.value for one in ListenerProtocol if one.authenticates] == ["sasl_plain", "sasl_tls"]
    assert [one.kafka_name for one in ListenerProtocol] == ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
