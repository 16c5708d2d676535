"""The headings under which the tools keep what they write, and the others that mean the same."""

HISTORY = ("Update History",)
TASKS = ("Ongoing Tasks", "Current Tasks", "Tasks")
ISSUES = ("Known Issues",)
NEXT_STEPS = ("Next Steps",)
CURRENT_NOTES = ("Current Session Notes", "Session Notes")
SESSION_NOTES = ("Session Notes", "Current Session Notes")
LISTS = (*TASKS, *ISSUES, *NEXT_STEPS, *SESSION_NOTES)
