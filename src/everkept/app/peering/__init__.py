"""Asking other people's servers, and answering them."""
