"""Import, export and migration: all data in another form or another database.

An export is lines of JSON in the order of arrival, so parents come before children, and git sees one line for each
change. Import plans each commit against the present data and marks it `copied` (`Batch.copied`), so parents do not
count as changed.
"""
