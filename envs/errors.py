"""The exception that is raised for an error of the user."""


class InputError(ValueError):
    """A wrong option, file or value. The message is one sentence that names it and the remedy.

    Commands print the message and exit with status 1; programs can catch it as a ``ValueError``. Any other exception
    is a defect of this project.
    """
