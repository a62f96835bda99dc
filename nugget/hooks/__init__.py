"""Hooks that clients and git call; standard library only until there is work."""
