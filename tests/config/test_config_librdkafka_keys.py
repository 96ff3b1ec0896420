import generate_librdkafka_keys
import pytest
from config_samples import confluent_refuses

from kafka_coop.config import librdkafka_keys
from kafka_coop.config.known import KNOWN, REFUSED, property_of
from kafka_coop.config.properties import Kind, Property, Role
from kafka_coop.config.values import read
from kafka_coop.errors import ConfigurationError

_REGENERATE = f"the installed librdkafka has other properties: {generate_librdkafka_keys.__doc__}"


def test_the_module_is_what_the_installed_library_says() -> None:
    installed = generate_librdkafka_keys.library().rd_kafka_version_str().decode()
    if installed != librdkafka_keys.VERSION:
        pytest.skip(f"librdkafka {installed} is installed, not {librdkafka_keys.VERSION}")
    written = librdkafka_keys.GLOBAL, librdkafka_keys.TOPIC
    assert generate_librdkafka_keys.read_library() == written, _REGENERATE


def test_a_newer_library_has_every_property_we_read() -> None:
    scopes = generate_librdkafka_keys.read_library()
    installed = {p.name for scope in scopes for p in scope}
    consumers = {
        p.name for p in (*librdkafka_keys.GLOBAL, *librdkafka_keys.TOPIC) if p.role is Role.CONSUMER
    }
    assert consumers <= installed, _REGENERATE


def test_every_line_of_the_librarys_documentation_was_understood() -> None:
    text = generate_librdkafka_keys._documentation(generate_librdkafka_keys.library())
    documented = [*librdkafka_keys.GLOBAL, *librdkafka_keys.TOPIC]
    assert text.count("*Type: ") == sum(p.kind is not Kind.HIDDEN for p in documented)


@pytest.mark.parametrize("prop", librdkafka_keys.GLOBAL, ids=lambda p: p.name)
def test_our_reading_of_a_default_is_a_value(prop: Property) -> None:
    if prop.default is not None and prop.kind is not Kind.DEDICATED:
        assert read(prop, prop.default) is not None


def test_an_alias_names_a_known_property_of_the_same_kind() -> None:
    aliases = [p for p in KNOWN.values() if p.alias_of is not None]
    assert {p.name for p in aliases} >= {"bootstrap.servers", "sasl.mechanism"}
    for alias in aliases:
        assert property_of(alias.name).kind is alias.kind


@pytest.mark.parametrize(
    "prop", [p for p in KNOWN.values() if p.kind is Kind.HIDDEN], ids=lambda p: p.name
)
def test_hidden_properties_are_accepted_by_the_library(prop: Property) -> None:
    assert None in {confluent_refuses({prop.name: value}) for value in ("1", "10")}


@pytest.mark.parametrize(
    "prop", [p for p in KNOWN.values() if p.kind is Kind.DEDICATED], ids=lambda p: p.name
)
def test_properties_set_in_c_are_refused_as_confluent_refuses_them(prop: Property) -> None:
    with pytest.raises(ConfigurationError, match=prop.name) as caught:
        property_of(prop.name)
    assert caught.value.key == prop.name
    assert confluent_refuses({prop.name: "x"}) is not None


def test_java_keys_that_the_library_knows_to_refuse_are_refused_with_a_remedy() -> None:
    for key in ("ssl.truststore.location", "sasl.jaas.config"):
        assert confluent_refuses({key: "x"}) is not None
        with pytest.raises(ConfigurationError, match="set "):
            property_of(key)
    assert "topic.blacklist" in REFUSED
