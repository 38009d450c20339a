"""Sockets, TLS and HTTP below the application."""
