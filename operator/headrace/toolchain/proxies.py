"""The proxy variables of the environment as Java's networking properties."""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from headrace.errors import InvalidSpec


def proxy_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """System properties for ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``, in capitals or not.

    A JVM reads none of these variables. Names of the properties: "Networking Properties" in the
    documentation of java.net; of the user's two: Ivy's IvyAuthenticator.
    """
    properties: dict[str, str] = {}
    for scheme in ("http", "https"):
        variable = f"{scheme}_proxy"
        given = environment.get(variable) or environment.get(variable.upper())
        if not given:
            continue
        try:
            proxy = urlsplit(given if "://" in given else f"http://{given}")
            host, port = proxy.hostname, proxy.port
        except ValueError:
            host, port = None, None
        if not host:
            raise InvalidSpec(
                f"{variable.upper()} is no address of a proxy, such as http://proxy.example:3128"
            )
        properties[f"{scheme}.proxyHost"] = host
        properties[f"{scheme}.proxyPort"] = str(port or 80)
        if proxy.username:
            properties["http.proxyUser"] = unquote(proxy.username)
            properties["http.proxyPassword"] = unquote(proxy.password or "")
            # Without it Java answers no proxy's request for a password on the way to https.
            properties["jdk.http.auth.tunneling.disabledSchemes"] = ""
    if no_proxy := environment.get("no_proxy") or environment.get("NO_PROXY"):
        properties["http.nonProxyHosts"] = "|".join(_patterns(no_proxy))
    return properties


def _patterns(no_proxy: str) -> list[str]:
    """A name stands for its subdomains too (curl's rule), which Java wants written with a star."""
    patterns = []
    for entry in filter(None, (part.strip() for part in no_proxy.split(","))):
        name = entry.lstrip("*.")
        patterns += [name, f"*.{name}"] if name else ["*"]
    return patterns
