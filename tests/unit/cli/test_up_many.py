"""What each of several brokers is started with, and what is refused before anything is started."""

from pathlib import Path

import pytest

from martlet.cli.configuration import load_configuration
from martlet.cli.failures import CommandFailed
from martlet.cli.up_many import BrokerPlan, Etcd, Wish, find_etcd, plan_brokers

Flags = dict[str, tuple[str, str]]


def _plans(wish: Wish, flags: Flags | None = None, *, metadata: str = "") -> list[BrokerPlan]:
    flags = flags or {}
    configuration = load_configuration(flags, environment={}, file=None)
    return plan_brokers(wish, configuration, flags, None, host_name="this-host", metadata=metadata)


def test_addresses_are_counted_up_and_the_host_is_the_rack() -> None:
    plans = _plans(Wish(3, False))
    assert [plan.settings["kafka"] for plan in plans] == [f"127.0.0.1:{port}" for port in (9092, 9093, 9094)]
    assert [plan.settings["operations"] for plan in plans] == [f"127.0.0.1:{port}" for port in (9644, 9645, 9646)]
    assert [plan.settings["broker_id"] for plan in plans] == ["1", "2", "3"]
    assert {plan.settings["rack"] for plan in plans} == {"this-host"}
    assert len({plan.settings["data"] for plan in plans}) == 1
    assert not any("metadata" in plan.settings or "default_replication_factor" in plan.settings for plan in plans)


def test_port_zero_stays_zero_until_the_broker_says_where_it_is_and_is_kept_from_then_on() -> None:
    flags = {"kafka": ("--kafka", "127.0.0.1:0"), "operations": ("--operations", "[::1]:0")}
    plan = _plans(Wish(2, False), flags)[1]
    assert (plan.settings["kafka"], plan.settings["operations"]) == ("127.0.0.1:0", "[::1]:0")
    assert "kafka=127.0.0.1:0" in plan.command()
    assert not plan.announced("Martlet 1.0 is up.")
    assert not plan.announced("  Kafka       127.0.0.1:4711")
    assert not plan.announced("  operations  http://[::1]:4712  (/healthz /readyz /metrics)")
    assert plan.announced("  data        /somewhere")
    assert (plan.kafka, plan.operations) == ("127.0.0.1:4711", "[::1]:4712")
    assert {"kafka=127.0.0.1:4711", "operations=[::1]:4712"} <= set(plan.command())


def test_what_the_user_sets_goes_to_every_broker() -> None:
    flags = {
        "rack": ("--set rack", "r9"),
        "broker_id": ("--set broker_id", "5"),
        "log_level": ("--set log_level", "debug"),
    }
    plans = _plans(Wish(2, True), flags, metadata="etcd://h:1/p")
    assert [plan.id for plan in plans] == [5, 6]
    assert all({"rack=r9", "log_level=debug", "metadata=etcd://h:1/p"} <= set(plan.command()) for plan in plans)


def test_a_play_cluster_has_a_rack_for_each_broker_and_as_many_copies_as_it_can() -> None:
    plans = _plans(Wish(2, True), metadata="etcd://h:1/p")
    assert [plan.settings["rack"] for plan in plans] == ["rack-1", "rack-2"]
    assert {plan.settings["default_replication_factor"] for plan in plans} == {"2"}
    assert {plan.settings["default_replication_factor"] for plan in _plans(Wish(5, True), metadata="m")} == {"3"}
    chosen = {"default_replication_factor": ("--set default_replication_factor", "1")}
    assert {plan.settings["default_replication_factor"] for plan in _plans(Wish(5, True), chosen)} == {"1"}


@pytest.mark.parametrize(
    ("wish", "flags", "sentence"),
    [
        (
            Wish(2, False),
            {"listeners": ("--set listeners", "a=plain://127.0.0.1:1")},
            "cannot be those of several brokers",
        ),
        (Wish(2, False), {"advertised": ("--set advertised", "h:1")}, "cannot be that of several brokers"),
        (Wish(2, True), {"metadata": ("--set metadata", "etcd://h:1")}, "--cluster brings a metadata store"),
        (Wish(9, False), {"kafka": ("--kafka", "127.0.0.1:65530")}, "too few ports"),
    ],
)
def test_what_cannot_be_is_refused(wish: Wish, flags: Flags, sentence: str) -> None:
    with pytest.raises(CommandFailed, match=sentence) as caught:
        _plans(wish, flags)
    assert caught.value.exit_code == 2


def test_without_etcd_a_play_cluster_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandFailed, match="needs the program etcd") as caught:
        find_etcd(str(tmp_path))
    assert caught.value.exit_code == 3
    assert "--brokers" in (caught.value.next_step or "")


def test_etcd_listens_on_this_machine_only() -> None:
    etcd = Etcd("etcd", "/data/etcd", client_port=4001, peer_port=4002)
    urls = [part.partition("=")[2] for part in etcd.command() if "http" in part]
    assert all("127.0.0.1:400" in url for url in urls)
    assert etcd.metadata == "etcd://127.0.0.1:4001/martlet"
