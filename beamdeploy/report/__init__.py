"""The only place that prints: results on stdout, progress and problems on stderr, as text or as one JSON object."""

from __future__ import annotations

from beamdeploy.report.progress import Progress
from beamdeploy.report.show import show, show_lines, show_problems
from beamdeploy.report.text import clean, clean_line

__all__ = ["Progress", "clean", "clean_line", "show", "show_lines", "show_problems"]
