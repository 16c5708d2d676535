"""Projects, entities, observations and relations."""
