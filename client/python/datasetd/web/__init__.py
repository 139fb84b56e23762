"""python -m datasetd web: one page about a daemon, its jobs and its datasets.

The page is served to the user who starts it, with that user's rights: to the
daemon it is an ordinary client that only asks. Python's http.server carries it,
since it is in every Python and the page needs no more than GET; see
docs/web.md for what protects it.
"""
