"""Import, export and migration: everything in another form or another database.

An export is lines of JSON in the order of arrival, so that what belongs to something comes after it
and git sees one line for one change; taking it in plans each commit against what is there and marks
it `copied` (`Batch.copied`): what it belongs to has not changed by it.
"""
