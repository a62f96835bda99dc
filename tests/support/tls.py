"""A server on loopback whose certificate is by an authority of its own."""

import ssl
from http.server import HTTPServer
from pathlib import Path

import trustme


def encrypt(server: HTTPServer, folder: Path) -> str:
    """Put TLS before a server; return the path of the file that makes it trusted."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return str(folder / "ca.pem")
