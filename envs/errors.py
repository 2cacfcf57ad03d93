"""The one exception for what a user got wrong."""


class InputError(ValueError):
    """A wrong option, file or value, told in one sentence that names it and says what to do.

    Commands print the sentence and exit with status 1; programs catch it as a ``ValueError``.
    Anything else that is raised is a defect of this project.
    """
