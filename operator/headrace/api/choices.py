"""Fields that belong to one choice of another field."""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.api.extensions import Rule
from headrace.api.model import Breach


@dataclass(frozen=True)
class OnlyWith:
    """A field that one choice of another field requires, and that no other choice allows."""

    field: str
    """The field, in the manifest's spelling."""
    of: str
    """The field that chooses."""
    choice: str
    """The value of that field."""

    @property
    def _required(self) -> str:
        return f"is required with {self.of}: {self.choice}"

    @property
    def _only(self) -> str:
        return f"goes with {self.of}: {self.choice} only"

    def breaches(self, value: object, chosen: str) -> Iterator[Breach]:
        """Yield the breach of a value of the field, beside what was chosen."""
        if chosen == self.choice and value is None:
            yield Breach((self.field,), self._required)
        if chosen != self.choice and value is not None:
            yield Breach((self.field,), self._only)

    @property
    def rules(self) -> tuple[Rule, Rule]:
        """The two rules for the API server."""
        chosen = f"has(self.{self.of}) && self.{self.of} == '{self.choice}'"
        given = f"has(self.{self.field})"
        return (
            Rule(f"!({chosen}) || {given}", self._required, self.field, "FieldValueRequired"),
            Rule(f"!{given} || {chosen}", self._only, self.field, "FieldValueForbidden"),
        )
