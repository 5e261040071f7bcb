"""The only place that prints: results on stdout, progress and problems on stderr, as text or as one JSON object."""

from __future__ import annotations

from beamdeploy.report.paste import pasted
from beamdeploy.report.progress import Progress
from beamdeploy.report.show import (
    log_line,
    show,
    show_found,
    show_lines,
    show_plans,
    show_problems,
    show_table,
    show_text,
)
from beamdeploy.report.text import clean, clean_line

__all__ = [
    "Progress",
    "clean",
    "clean_line",
    "log_line",
    "pasted",
    "show",
    "show_found",
    "show_lines",
    "show_plans",
    "show_problems",
    "show_table",
    "show_text",
]
