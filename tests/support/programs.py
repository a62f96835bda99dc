"""Programs that tests write."""

from pathlib import Path


def program(file: Path, text: str) -> Path:
    """Write a shell script that can be run; its folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file
