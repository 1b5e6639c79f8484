"""Puts together what decides on access in one broker, from its settings; see the parts for what they do."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from martlet.base.clock import Clock
from martlet.base.randomness import Randomness
from martlet.base.secret import Secret
from martlet.broker.access.access_rules import AccessRules
from martlet.broker.access.audit import Audit
from martlet.broker.access.authentication import USER, Authentication, AuthenticationOptions
from martlet.broker.access.rule_admin import RuleAdmin
from martlet.broker.access.tls import Tls, TlsFiles, TlsUnusable
from martlet.broker.access.user_admin import UserAdmin
from martlet.broker.access.users import BROKER_MECHANISM, BROKER_USER, Users
from martlet.broker.ground.listeners import ListenerProtocol, Listeners
from martlet.broker.ground.peer_connection import Connect, connect_with
from martlet.broker.ground.security_settings import sasl_mechanisms, super_users
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.client.security import ClientSecurity, SecurityProtocol
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.security.authorizer import Authorizer
from martlet.security.sasl import Mechanism


@dataclass(slots=True)
class Access:
    """One broker's parts; made by `make_access`."""

    audit: Audit
    authentication: Authentication
    user_admin: UserAdmin
    rule_admin: RuleAdmin
    connect_to_broker: Connect
    """How this broker reaches others, as what their listener asks for."""
    rules: AccessRules | None = None
    """None while everybody may do everything."""
    tls: Tls | None = None
    """None where no listener needs it."""
    end_sessions: Callable[[Collection[str]], None] = lambda users: None
    """Ends the connections of users that are not what they were; the server's, once there is one."""

    def follow(self, delta: ImageDelta) -> None:
        """Take over what changed in the metadata."""
        if self.rules is not None:
            self.rules.follow(delta)
        if delta.users:
            self.end_sessions(frozenset(delta.users))


def make_access(
    settings: BrokerSettings, listeners: Listeners, changes: MetadataChanges, clock: Clock, randomness: Randomness
) -> Access:
    """The parts for a broker with these settings."""
    audit = Audit(clock)
    image = changes.image
    options = AuthenticationOptions(
        mechanisms=sasl_mechanisms(settings.sasl_mechanisms),
        broker_listener=listeners.for_brokers,
        session_ms=settings.sasl_session_ms,
    )
    authentication = Authentication(options, Users(image), clock, randomness, audit)
    rules = None
    if settings.access_rules:
        authorizer = Authorizer([*super_users(settings.super_users), f"{USER}:{BROKER_USER}"])
        rules = AccessRules(authorizer, image, audit)
    return Access(
        audit=audit,
        authentication=authentication,
        user_admin=UserAdmin(changes),
        rule_admin=RuleAdmin(changes),
        connect_to_broker=_connect(settings, image),
        rules=rules,
        tls=_tls(settings, listeners, clock),
    )


def _tls(settings: BrokerSettings, listeners: Listeners, clock: Clock) -> Tls | None:
    if not any(one.protocol.encrypts for one in listeners.all):
        return None
    if not settings.tls_cert or not settings.tls_key:
        raise TlsUnusable("a listener with TLS needs tls_cert and tls_key")
    return Tls(TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca, settings.tls_client_auth), clock)


def _connect(settings: BrokerSettings, image: MetadataImage) -> Connect:
    """How brokers of this cluster reach each other: as the listener asks that the other one registered."""

    def security(word: str) -> ClientSecurity:
        protocol = SecurityProtocol(ListenerProtocol(word).kafka_name)
        if protocol is SecurityProtocol.PLAINTEXT:
            return ClientSecurity()
        return ClientSecurity(
            protocol=protocol,
            mechanism=Mechanism(BROKER_MECHANISM.value),
            username=BROKER_USER,
            password=Secret(image.replica_secret),
            ca_file=settings.tls_ca,
            certificate_file=settings.tls_cert,
            key_file=settings.tls_key,
        )

    return connect_with(security)
