"""Run the resident server: `python -m nugget.mcp SOCKET`, as `nugget serve` starts it."""

from nugget.app import resident
from nugget.mcp import serve_lines

resident.main(serve_lines)
