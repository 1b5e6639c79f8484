"""The TLS of a broker: contexts made from files, checked before they are used, and made again when the files change.

A context in use is never changed, because half of a new certificate could take effect; a new one is made, shakes hands
with itself, and takes the place of the old for connections to come. Files that cannot be used leave the old in place.

Rules: TLS 1.2 and 1.3 only, no renegotiation, no compression; a key that others may read is refused.

Proved by: tests/unit/broker/access/test_tls.py, tests/broker/test_tls.py
"""

import asyncio
import logging
import os
import ssl
import stat
from dataclasses import dataclass
from typing import Any, Final

from martlet.base.clock import Clock
from martlet.base.errors import MartletError

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 10.0
_DAY_MS: Final = 86_400_000
_WARN_DAYS: Final = (1, 7, 30)
_SHAKE_STEPS_MAX: Final = 20


class TlsUnusable(MartletError):
    """The files do not make a TLS that clients could use; the sentence names the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What an operator gives."""

    certificate: str
    key: str
    authorities: str = ""
    """Whose certificates clients and other brokers may show."""
    client_auth: str = "none"

    def signature(self) -> tuple[object, ...]:
        """Differs when one of the files is another; follows links, which Kubernetes swaps."""
        found: list[object] = []
        for path in (self.certificate, self.key, self.authorities):
            if path:
                try:
                    status = os.stat(path)
                except OSError:
                    found.append(None)
                else:
                    found.append((os.path.realpath(path), status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """A context, and until when its certificate counts."""

    server: ssl.SSLContext
    expires_at_ms: int


def load_tls(files: TlsFiles) -> TlsMaterial:
    """A context from the files as they are now; raises TlsUnusable."""
    _check_key(files.key)
    server = _context(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(files.certificate, files.key, password="")
    except (ssl.SSLError, OSError) as error:
        raise TlsUnusable(
            f"the certificate {files.certificate} and the key {files.key} cannot be used: {_reason(error)}"
        ) from None
    server.verify_mode = {
        "none": ssl.CERT_NONE,
        "requested": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }[files.client_auth]
    if files.client_auth != "none":
        if not files.authorities:
            raise TlsUnusable(
                "client certificates are asked for, but tls_ca names no authorities to check them against"
            )
        # A ticket would outlive a certificate that is not trusted any more.
        server.options |= ssl.OP_NO_TICKET
        server.num_tickets = 0
        try:
            server.load_verify_locations(files.authorities)
        except (ssl.SSLError, OSError) as error:
            raise TlsUnusable(f"the authorities in {files.authorities} cannot be used: {_reason(error)}") from None
    return TlsMaterial(server, _shake_hands(files))


def _context(protocol: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _check_key(path: str) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        raise TlsUnusable(f"the key {path} cannot be read: {_reason(error)}") from None
    for_group = bool(status.st_mode & stat.S_IRWXG) and status.st_uid != 0
    if status.st_mode & stat.S_IRWXO or for_group:
        mode = stat.S_IMODE(status.st_mode)
        raise TlsUnusable(f"the key {path} may be read by others (mode {mode:03o}); chmod 600 it")


def _shake_hands(files: TlsFiles) -> int:
    """Let the certificate prove itself to a client that trusts just it; returns when it expires, by the wall clock."""
    server = _context(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key, password="")
    client = _context(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(files.certificate)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True))
    try:
        for _ in range(_SHAKE_STEPS_MAX):
            waiting = 0
            for side in sides:
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    waiting += 1
            if not waiting:
                break
    except ssl.SSLError as error:
        raise TlsUnusable(f"the certificate {files.certificate} is refused by a client: {_reason(error)}") from None
    certificate: Any = sides[0].getpeercert() or {}
    return int(ssl.cert_time_to_seconds(certificate["notAfter"]) * 1000)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError):
        return str(error.reason or "it is not PEM").replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error)


class Tls:
    """Owned by the broker: the material in use, renewed while the broker runs."""

    def __init__(self, files: TlsFiles, clock: Clock) -> None:
        """Raises TlsUnusable."""
        self._files = files
        self._clock = clock
        self._signature = files.signature()
        self.material = load_tls(files)
        self._failed: tuple[object, ...] | None = None
        self._warned_days = max(_WARN_DAYS) + 1
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look at the files now and then."""
        self._task = asyncio.create_task(self._watch(), name="martlet-tls-files")

    async def aclose(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def server_context(self) -> ssl.SSLContext:
        """For the next connection that a client opens."""
        return self.material.server

    def seconds_left(self) -> float:
        """Until the certificate in use expires; less than 0 afterwards."""
        return (self.material.expires_at_ms - self._clock.now_ms()) / 1000

    def renew(self) -> bool:
        """Take other files into use if there are; whether there were, and they can be used."""
        signature = self._files.signature()
        if signature in (self._signature, self._failed):
            return False
        try:
            self.material = load_tls(self._files)
        except TlsUnusable as error:
            self._failed = signature
            logger.error("the TLS files have changed, but cannot be used; those of before stay in use: %s", error)
            return False
        self._signature, self._failed = signature, None
        self._warned_days = max(_WARN_DAYS) + 1
        logger.warning("new TLS files are in use; the certificate counts for %d days", self.seconds_left() // 86_400)
        return True

    async def _watch(self) -> None:
        while True:
            self._warn()
            await asyncio.sleep(_LOOK_SECONDS)
            self.renew()

    def _warn(self) -> None:
        days_left = (self.material.expires_at_ms - self._clock.now_ms()) / _DAY_MS
        due = next((days for days in _WARN_DAYS if days_left <= days), None)
        if due is not None and due < self._warned_days:
            self._warned_days = due
            logger.warning("the TLS certificate %s expires in %.1f days", self._files.certificate, days_left)
