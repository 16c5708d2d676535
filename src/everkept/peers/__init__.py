"""Peers: other people's Everkept servers that searches ask over HTTPS, each identified by its certificate."""
