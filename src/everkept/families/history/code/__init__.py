"""Code in conversations: its language, what it defines and uses, and what follows from that."""
