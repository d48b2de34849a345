"""Sentences for requests that the API server rejects."""

import pytest

from headrace.errors import HeadraceError
from headrace.k8s import (
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    NotServed,
    ObjectInvalid,
    Unavailable,
)
from headrace.k8s.errors import read_status, sentence, translate
from headrace.k8s.kinds import DEPLOYMENT, NAMESPACE, TASK

TRIED = sentence("the operator", "patch", DEPLOYMENT, "shop", "orders-driver")


def test_what_was_tried() -> None:
    assert TRIED == "the operator could not patch deployments.apps orders-driver in namespace shop"
    assert sentence("x", "list", TASK, None) == (
        "x could not list replicationtasks.headrace.dev in all namespaces"
    )
    assert sentence("x", "get", NAMESPACE, None, "y") == "x could not get namespaces y"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ObjectInvalid),
        (401, Unavailable),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (422, ObjectInvalid),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
def test_the_class_says_what_to_do(status: int, error: type[HeadraceError]) -> None:
    found = translate(status, {"message": "its own words"}, TRIED)
    assert type(found) is error
    assert str(found).startswith(TRIED)
    assert str(found).endswith("its own words")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'deployments.apps "orders-driver" is forbidden: User "system:serviceaccount:a:b" '
            'cannot patch resource "deployments" in API group "apps" in the namespace "shop"',
            "the operator may not patch deployments.apps in namespace shop: give that right to "
            "system:serviceaccount:a:b",
        ),
        (
            'pods is forbidden: User "me" cannot list resource "pods" in API group "" at the '
            "cluster scope",
            "the operator may not list pods cluster-wide: give that right to me",
        ),
        (
            'x is forbidden: User "me" cannot update resource "replicationtasks/status" in API '
            'group "headrace.dev" in the namespace "shop"',
            "the operator may not update replicationtasks.headrace.dev/status in namespace shop: "
            "give that right to me",
        ),
        ("exceeded quota: pods", f"{TRIED}: exceeded quota: pods"),
    ],
)
def test_a_missing_right(message: str, expected: str) -> None:
    assert str(translate(403, {"message": message}, TRIED)) == expected


def test_an_answer_of_a_proxy() -> None:
    assert str(translate(502, read_status("<html>Bad Gateway</html>"), TRIED)) == (
        f"{TRIED}: the API server answers 502: <html>Bad Gateway</html>"
    )


@pytest.mark.parametrize(
    "text",
    ["404 page not found\n", '{"message": "the server could not find the requested resource"}'],
)
def test_a_kind_that_is_not_served_says_nothing_about_its_objects(text: str) -> None:
    """An API server answers this for a CRD in the first moments after its start."""
    found = translate(404, read_status(text), TRIED)
    assert type(found) is NotServed
    assert str(found) == (
        f"{TRIED}: the API server does not know this kind: apply the definitions (CRDs) first"
    )
