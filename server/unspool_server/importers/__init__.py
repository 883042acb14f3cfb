"""Bringing in threads of other programs: `import_paths` finds, converts and reports; converters are pure."""

from .bringing import Form, detect, import_paths
from .report import FileReport, ImportReport, Loss, Outcome

__all__ = ["FileReport", "Form", "ImportReport", "Loss", "Outcome", "detect", "import_paths"]
