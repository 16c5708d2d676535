"""The graph domain below every dialect: entities, observations, relations, lookup and walk."""
