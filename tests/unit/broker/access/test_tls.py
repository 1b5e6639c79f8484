"""TLS files: what is refused at the start, and what happens when they change while the broker runs."""

import logging
import ssl
from pathlib import Path

import pytest

from martlet.base.clock import SystemClock
from martlet.broker.access.tls import Tls, TlsFiles, TlsUnusable, load_tls
from tests.stores.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def copied(authority: Authority, directory: Path, name: str = "one") -> TlsFiles:
    certificate, key = authority.pair(name)
    files = TlsFiles(str(directory / "tls.pem"), str(directory / "tls.key"), authority.ca_file)
    replace(files, certificate, key)
    return files


def replace(files: TlsFiles, certificate: str, key: str) -> None:
    Path(files.certificate).write_bytes(Path(certificate).read_bytes())
    Path(files.key).write_bytes(Path(key).read_bytes())
    Path(files.key).chmod(0o600)


def test_good_files_make_a_context_that_knows_when_it_expires(authority: Authority, tmp_path: Path) -> None:
    tls = Tls(copied(authority, tmp_path), SystemClock())
    assert 86_000 < tls.seconds_left() < 173_000
    assert tls.server_context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_key_that_others_may_read_is_refused_with_what_to_do(authority: Authority, tmp_path: Path) -> None:
    files = copied(authority, tmp_path)
    Path(files.key).chmod(0o644)
    with pytest.raises(TlsUnusable, match=r"may be read by others \(mode 644\); chmod 600 it"):
        load_tls(files)


def test_files_that_are_missing_mismatched_or_no_certificates_are_refused(authority: Authority, tmp_path: Path) -> None:
    files = copied(authority, tmp_path)
    other_certificate, other_key = authority.pair("two")
    with pytest.raises(TlsUnusable, match="key values mismatch"):
        load_tls(TlsFiles(other_certificate, files.key))
    with pytest.raises(TlsUnusable, match="cannot be read"):
        load_tls(TlsFiles(files.certificate, str(tmp_path / "missing")))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(TlsUnusable, match="cannot be used"):
        load_tls(TlsFiles(str(tmp_path / "text"), other_key))
    with pytest.raises(TlsUnusable, match="tls_ca names no authorities"):
        load_tls(TlsFiles(files.certificate, files.key, client_auth="required"))


def test_changed_files_take_effect_whole_and_the_old_context_lives_on(authority: Authority, tmp_path: Path) -> None:
    files = copied(authority, tmp_path)
    tls = Tls(files, SystemClock())
    before = tls.server_context()
    assert not tls.renew()
    replace(files, *authority.pair("three"))
    assert tls.renew()
    assert tls.server_context() is not before
    assert not tls.renew()


def test_bad_files_leave_the_old_ones_in_use_and_are_said_once(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = copied(authority, tmp_path)
    tls = Tls(files, SystemClock())
    before = tls.server_context()
    Path(files.certificate).write_text("half a file")
    with caplog.at_level(logging.ERROR):
        assert not tls.renew()
        assert not tls.renew()
    assert tls.server_context() is before
    assert caplog.text.count("those of before stay in use") == 1
