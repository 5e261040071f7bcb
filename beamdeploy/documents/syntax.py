"""What the scanner and the parser complain of, in a reader's words."""

from __future__ import annotations

import yaml

from beamdeploy.documents.scalar import Fault
from beamdeploy.errors import Problem

MAX_DEPTH = 100
TEMPLATE = "files are not templates: write the value itself, or quote it if the braces are meant"


def _line(text: str, number: int) -> str:
    """The line `number` (from 0) of `text`, empty beyond its end."""
    lines = text.split("\n", number + 1)
    return lines[number] if number < len(lines) else ""


def is_template(text: str, number: int) -> bool:
    line = _line(text, number)
    return "{{" in line or "{%" in line


def syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Problem:
    """A scanner's or parser's complaint in a reader's words."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return Problem(f"not YAML: {error}", "correct the text", file=file, line=1, col=1, rule="BD005")
    complaint = str(getattr(error, "problem", None) or "")
    context = str(getattr(error, "context", None) or "")
    line, col = mark.line, mark.column
    start = getattr(error, "context_mark", None)
    if start is not None and "quoted scalar" in context and "escape" not in complaint:
        line, col = start.line, start.column
    what, remedy, rule = _complaint(complaint, context, _line(text, line), col)
    return Problem(what, remedy, file=file, line=line + 1, col=col + 1, rule=rule)


def _complaint(complaint: str, context: str, line: str, col: int) -> Fault:
    char = line[col : col + 1]
    if "{{" in line or "{%" in line:
        return "this looks like a template: {{ … }} is not filled in here", TEMPLATE, "BD009"
    if char == "\t" or "tab" in complaint:
        return "a tab stands where YAML wants blanks", "use blanks to indent, never tabs", "BD006"
    if "nest" in complaint:
        return f"more than {MAX_DEPTH} levels are nested", "is it the right file?", "BD018"
    if "quoted scalar" in context and "escape" not in complaint:
        return "the quote is not closed", "close it with the same quote at the end of the text", "BD007"
    if "mapping values are not allowed" in complaint:
        remedy = (
            'quote the value if it holds ": ", as in note: "first: second"; else check quotes and indentation above'
        )
        return "a colon stands where no key can be", remedy, "BD008"
    if "cannot start any token" in complaint:
        return f"a value cannot begin with {char} unquoted", "quote the value", "BD008"
    said = f"{context}: {complaint}" if context else complaint
    return f"not YAML: {said}", "check the quotes, brackets and indentation here and on the lines before", "BD005"
