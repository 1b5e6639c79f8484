"""Addresses and settings of an etcd: what is understood, and what is said about the rest."""

from pathlib import Path

import pytest

from martlet.cluster.store import StoreRefused
from martlet.stores.etcd_options import EtcdAddress, EtcdEndpoint, EtcdOptions, EtcdTls, parse_etcd_address, tls_context


@pytest.mark.parametrize(
    ("text", "endpoints", "root"),
    [
        ("etcd://h", [("h", 2379)], "/martlet/"),
        ("etcd://h:1/", [("h", 1)], "/martlet/"),
        ("etcd://10.0.0.1:2379,b.example:2380/a/b", [("10.0.0.1", 2379), ("b.example", 2380)], "/a/b/"),
        ("etcd://[::1]:7/x/", [("::1", 7)], "/x/"),
        ("etcd://[fe80::1]", [("fe80::1", 2379)], "/martlet/"),
    ],
)
def test_an_address_names_endpoints_and_a_prefix(text: str, endpoints: list[tuple[str, int]], root: str) -> None:
    assert parse_etcd_address(text) == EtcdAddress(tuple(EtcdEndpoint(*endpoint) for endpoint in endpoints), root)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("http://h:2379", "is no etcd address; an etcd address looks like"),
        ("", "is no etcd address"),
        ("etcd://", "names no host"),
        ("etcd://:2379", "names no host"),
        ("etcd://h,,k", "names no host"),
        ("etcd://a:b:c", "names no host"),
        ("etcd://::1", "names no host"),
        ("etcd://[::1", "lacks its bracket"),
        ("etcd://[::1]x", "lacks its bracket"),
        ("etcd://h:0", "'0' is no port"),
        ("etcd://h:65536", "'65536' is no port"),
        ("etcd://h:²", "is no port"),
        ("etcd://h:", "'' is no port"),
        ("etcd://h\x00", "names no host"),
        ("etcd://h,h", "names an endpoint twice"),
        ("etcd://user:secret@h", "do not belong in the etcd address"),
        ("etcd://h/é", "the prefix may hold"),
        ("etcd://h/a?tls=1", "the prefix may hold"),
        ("etcd://h/a b", "the prefix may hold"),
    ],
)
def test_a_wrong_address_is_refused_with_what_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(StoreRefused) as caught:
        parse_etcd_address(text)
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_endpoint_prints_as_it_is_written() -> None:
    assert [str(EtcdEndpoint("h", 1)), str(EtcdEndpoint("::1", 2))] == ["h:1", "[::1]:2"]


def test_a_password_without_a_user_is_a_mistake() -> None:
    with pytest.raises(StoreRefused, match="without a user"):
        EtcdOptions(parse_etcd_address("etcd://h"), password="p")


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    assert tls_context(None) is None
    absent, rubbish = str(tmp_path / "absent.pem"), tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    for tls, sentence in (
        (EtcdTls(ca_file=absent), absent),
        (EtcdTls(ca_file=str(rubbish)), "rubbish.pem"),
        (EtcdTls(certificate_file=absent), absent),
        (EtcdTls(certificate_file=str(rubbish), key_file=absent), f"with {absent}"),
        (EtcdTls(key_file=absent), "without its certificate"),
    ):
        with pytest.raises(StoreRefused) as caught:
            tls_context(tls)
        assert sentence in str(caught.value)
