"""For development and tests only: `python -m shop`, and fakes of the mail service and the bank."""
