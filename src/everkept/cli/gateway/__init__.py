"""`everkept gateway`, and the gateway's tools as commands."""
