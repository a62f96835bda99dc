"""Agents other than Claude Code: where each keeps its sessions, and how they become models.Session.

A module an agent, with `find(environment)` and `read(...)`. Their tools go by Claude Code's names afterwards
(`Bash`, `Write`, `Edit`, `TodoWrite`), so that nobody downstream has to know whose session it is.
"""
