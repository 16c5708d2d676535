"""Other people's servers behind one port: who they are, asked over HTTPS, known by certificate."""
