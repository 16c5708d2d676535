"""One call on its way to a server behind the gateway, and back."""
