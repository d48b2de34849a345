"""Proxy variables become Java's properties."""

import pytest

from headrace.errors import InvalidSpec
from headrace.toolchain.jars import proxy_properties


def test_without_a_proxy_java_is_told_nothing() -> None:
    assert proxy_properties({}) == {}


def test_proxies_of_both_schemes() -> None:
    properties = proxy_properties(
        {"HTTPS_PROXY": "http://proxy.example:3128", "http_proxy": "other.example:80"}
    )
    assert properties == {
        "http.proxyHost": "other.example",
        "http.proxyPort": "80",
        "https.proxyHost": "proxy.example",
        "https.proxyPort": "3128",
    }


def test_small_letters_win_as_in_curl() -> None:
    properties = proxy_properties(
        {"https_proxy": "http://small:1", "HTTPS_PROXY": "http://large:2"}
    )
    assert properties["https.proxyHost"] == "small"


def test_a_password_is_decoded_and_allowed_on_the_way_to_https() -> None:
    properties = proxy_properties({"HTTPS_PROXY": "http://me:p%40ss@proxy.example:3128"})
    assert properties["http.proxyUser"] == "me"
    assert properties["http.proxyPassword"] == "p@ss"
    assert properties["jdk.http.auth.tunneling.disabledSchemes"] == ""


def test_names_without_a_proxy_cover_their_subdomains() -> None:
    properties = proxy_properties({"NO_PROXY": "localhost, .corp.example,*"})
    assert properties == {
        "http.nonProxyHosts": "localhost|*.localhost|corp.example|*.corp.example|*"
    }


@pytest.mark.parametrize("address", ["http://", "http://proxy:port", "://"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidSpec, match="HTTPS_PROXY is no address of a proxy"):
        proxy_properties({"HTTPS_PROXY": address})
