"""Gateways to what is outside: files, processes, git, GitHub, models."""
