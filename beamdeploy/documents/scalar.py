"""Unquoted text: the value it stands for, or why it must be quoted."""

from __future__ import annotations

import math
import re

FIRST = frozenset("0123456789+-.~yYnNtTfFoO")
_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_SAID_TRUE = frozenset(word for each in ("yes", "on") for word in (each, each.title(), each.upper()))
_SAID_FALSE = frozenset(word for each in ("no", "off") for word in (each, each.title(), each.upper()))
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+", re.ASCII)
_BASE_60 = re.compile(r"([-+]?)([1-9][0-9_]*(?::[0-5]?[0-9])+|[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]*[0-9][0-9_]*", re.ASCII)
_ODD_NUMBER = re.compile(
    r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?)",
    re.ASCII,
)


_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?",
    re.ASCII,
)


Fault = tuple[str, str, str]  # what, remedy, rule


def plain_value(text: str) -> tuple[object, Fault | None]:
    """The value of unquoted text; with a fault the text itself stands for it."""
    if text in _TRUTH:
        return _TRUTH[text], None
    if text in _NULL:
        return None, None
    if _INTEGER.fullmatch(text):
        small = len(text) <= 20 and -(2**63) <= int(text) < 2**63
        return (int(text), None) if small else (text, _large(text))
    if _DECIMAL.fullmatch(text):
        number = float(text)
        return (number, None) if math.isfinite(number) else (text, _large(text))
    return text, _fault(text)


def _fault(text: str) -> Fault | None:
    """Why text that is no plain word, number or truth cannot stay unquoted, if so."""
    if len(text) > 400:  # no number or date that anyone wrote, and the patterns below are not linear
        return None
    quote = f'quote it if it is text: "{_short(text)}"'
    if text in _SAID_TRUE or text in _SAID_FALSE:
        means = "true" if text in _SAID_TRUE else "false"
        return f"{text} is read as {means} by YAML", f'quote it ("{text}"), or write {means}', "BD019"
    if match := _BASE_60.fullmatch(text):
        return f"{_short(text)} is read as a base-60 number{_base_60(*match.groups())} by YAML", quote, "BD020"
    if _LEADING_ZERO.fullmatch(text):
        return f"{_short(text)}: a leading zero means octal in YAML{_octal(text)}", _unzeroed(text), "BD021"
    if _ODD_NUMBER.fullmatch(text):
        remedy = f"write it in plain decimal digits{_in_decimal(text)}, or {quote}"
        return f"{_short(text)} is not a plain decimal number", remedy, "BD022"
    if _NO_NUMBER.fullmatch(text):
        return f"{text} is read as infinity or as no number by YAML", f"write a number, or {quote}", "BD023"
    if _DATE.fullmatch(text):
        return f"{text} is read as a date by YAML", quote, "BD024"
    return None


def key_fault(key: str) -> Fault | None:
    """Why unquoted text is no key: YAML reads something else than text."""
    value, fault = plain_value(key)
    if fault is None and isinstance(value, str):
        return None
    read = "empty" if value is None else "a truth value" if isinstance(value, bool) else "a number"
    why = fault[0] if fault else f"{_short(key) or 'it'} is {read}"
    return f"the key is not text: {why}", f'quote the key if it is meant: "{_short(key)}"', "BD013"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _large(text: str) -> Fault:
    what = f"the number {_short(text)} is too large"
    return what, "numbers end at 9223372036854775807 (64 bits); quote it if it is text", "BD025"


def _base_60(sign: str, digits: str) -> str:
    """` (133342)` for `2222:22`; empty for fractions and for what is too long to be a port or a time."""
    if len(digits) > 40 or "." in digits:
        return ""
    number = 0
    for part in digits.replace("_", "").split(":"):
        number = number * 60 + int(part)
    return f" ({'-' * (sign == '-')}{number})"


def _octal(text: str) -> str:
    digits = text.replace("_", "")
    return f" ({int(digits, 8)})" if len(digits) <= 20 and not {"8", "9"} & set(digits) else ""


def _unzeroed(text: str) -> str:
    digits = text.replace("_", "").lstrip("+-0") or "0"
    return f'write {_short(digits)} for the decimal number, or quote it if it is text: "{_short(text)}"'


def _in_decimal(text: str) -> str:
    """` (100000)` for `1e5`, when that says it exactly."""
    bare = text.replace("_", "").lower()
    if len(bare) > 20:
        return ""
    if "x" in bare or "b" in bare:
        return f" ({int(bare, 0)})"
    number = float(bare)
    if abs(number) >= 1e15:
        return ""
    return f" ({int(number)})" if number.is_integer() else f" ({number})" if abs(number) >= 1e-4 else ""
