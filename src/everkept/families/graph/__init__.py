"""Tools for projects, entities, observations and relations."""
