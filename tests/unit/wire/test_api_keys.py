"""The table of APIs equals the schemas it was made from."""

from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from martlet.wire.api_keys import (
    API_FACTS,
    FIRST_OWN_KEY,
    NEVER_FLEXIBLE,
    ApiKey,
    api_name,
    first_flexible_version,
    is_flexible,
)


def test_every_key_and_name_of_the_schemas_is_there() -> None:
    kafkas = {int(key): key.name.lower() for key in ApiKey if key < FIRST_OWN_KEY}
    assert kafkas == dict(api_key_map)


def test_our_own_keys_have_facts_and_fit_a_header() -> None:
    own = [key for key in ApiKey if key >= FIRST_OWN_KEY]
    assert own
    assert all(key in API_FACTS and key < 1 << 15 for key in own)


def test_flexible_versions_are_those_of_the_schemas() -> None:
    for key, name in api_key_map.items():
        for version in schema_name_map[name]:
            flexible = bool(load_request_schema(key, version).__flexible__)
            assert is_flexible(key, version) == flexible, f"{name} v{version}"
            assert (version >= first_flexible_version(key)) == flexible, f"{name} v{version}"


def test_unknown_keys_and_versions_are_not_flexible() -> None:
    assert first_flexible_version(999) == NEVER_FLEXIBLE
    assert not is_flexible(999, 0)
    assert not is_flexible(ApiKey.API_VERSIONS, 99)
    assert not is_flexible(ApiKey.METADATA, -1)
    assert not is_flexible(ApiKey.SASL_HANDSHAKE, 1)


def test_names_for_people_exist_for_any_number() -> None:
    assert api_name(3) == "METADATA"
    assert api_name(-7) == "UNKNOWN_-7"
