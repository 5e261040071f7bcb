"""Values against a packaged JSON Schema (2020-12): every fault in words, at the line where it is written.

Four annotations give a schema its own words: `x-pattern-says` beside `pattern` ("a container name: letters, digits,
_ . -"), `x-names-say` beside `patternProperties` or `propertyNames`, `x-not-says` and `x-not-remedy` beside `not`.

Rules: BD030 unknown key · BD031 empty (null) · BD032 key missing · BD033 wrong kind of value · BD034 not a choice ·
BD035 text of the wrong form · BD036 too small or too large · BD037 too few, too many, too short or too long ·
BD038 twice in a list · BD039 name of a key · BD040 needs another key · BD041 keys that exclude each other ·
BD042 any other fault.
"""

from __future__ import annotations

from beamdeploy.documents import Document
from beamdeploy.errors import Problem
from beamdeploy.schema import known
from beamdeploy.schema.defaults import defaults, defaults_from
from beamdeploy.schema.packaged import Schema, load_schema

__all__ = ["check", "check_against", "defaults", "defaults_from", "load_schema"]


def check(document: Document, schema_name: str) -> tuple[Problem, ...]:
    """What is wrong with the values of `document`, by line; `schema_name` is "recipe", "inventory" or "lock".

    Data that was found good once is known: to import what validates takes longer than a whole look at a host.
    """
    name = known.name_of(document.data, schema_name)
    if known.is_good(name):
        return ()
    from beamdeploy.schema.faults import problems
    from beamdeploy.schema.validator import validator_of

    found = problems(document, validator_of(schema_name))
    if not found and not document.faults:
        known.note(name)
    return found


def check_against(document: Document, schema: Schema) -> tuple[Problem, ...]:
    """`check` against a schema given as a mapping; it is prepared anew at each call."""
    from beamdeploy.schema.faults import problems
    from beamdeploy.schema.validator import built

    return problems(document, built(schema))
