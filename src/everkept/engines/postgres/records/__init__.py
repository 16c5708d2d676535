"""The records of one store in the tables that all stores share."""
