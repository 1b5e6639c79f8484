"""The two-phase form: a prepared transaction outlives its client and its broker, and is ended by its id."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.end_txn import EndTxnRequest
from martlet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.test_transaction_apis import TransactionalProducer, read, wait_stable

NAME = "prepared"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", transaction_two_phase_commit=True).start()
    yield process
    process.kill()


def init(client: RawClient, *, keep: bool) -> InitProducerIdResponse:
    """Once the state is loaded and no end is being carried out."""
    passing = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    while True:
        request = InitProducerIdRequest(NAME, 60_000, enable2_pc=True, keep_prepared_txn=keep)
        answer = client.call(request, 6)
        if answer.error_code not in passing:
            assert isinstance(answer, InitProducerIdResponse)
            return answer


def prepare(client: RawClient) -> tuple[str, tuple[int, int]]:
    """An open transaction with one record; its topic and pair."""
    producer = TransactionalProducer(client, name=NAME)
    answer = init(client, keep=False)
    producer.pair = (answer.producer_id, answer.producer_epoch)
    assert producer.produce(b"prepared").error_code == 0
    return producer.topic, producer.pair


def test_the_two_phase_form_is_announced_where_it_is_enabled(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        (range_,) = [key for key in client.api_versions(3).api_keys if key.api_key == ApiKey.INIT_PRODUCER_ID]
        assert range_.max_version == 6


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_ended_by_its_id_after_client_and_broker_were_killed(
    broker: BrokerProcess, commit: bool
) -> None:
    with RawClient(broker.address) as client:
        topic, data_pair = prepare(client)
    broker.kill()
    broker.start()
    with RawClient(broker.address) as client:
        taken = init(client, keep=True)
        assert (taken.ongoing_txn_producer_id, taken.ongoing_txn_producer_epoch) == data_pair
        assert read(client, topic, committed=True).last_stable_offset == 0, "it is open still"
        old = client.call(EndTxnRequest(NAME, *data_pair, commit), 5)
        assert old.error_code == ErrorCode.PRODUCER_FENCED
        ended = client.call(EndTxnRequest(NAME, taken.producer_id, taken.producer_epoch, commit), 5)
        assert ended.error_code == 0
        done = wait_stable(client, topic)
        assert len(done.aborted_transactions or ()) == (0 if commit else 1)


def test_a_producer_that_does_not_keep_it_aborts_a_prepared_transaction(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        topic, _ = prepare(client)
        answer = init(client, keep=False)
        assert (answer.error_code, answer.ongoing_txn_producer_id) == (0, -1)
        assert len(wait_stable(client, topic).aborted_transactions or ()) == 1
