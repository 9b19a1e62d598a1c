"""What can't be released from."""

from __future__ import annotations


class RefusedViewError(Exception):
    """Why a view can't be released from, in half a sentence; becomes a SchemaError."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint
