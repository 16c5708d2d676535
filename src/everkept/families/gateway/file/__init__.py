"""What stands in a gateway's file: read with the line of everything, and told how to mend."""
