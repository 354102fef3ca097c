"""Check the language of documents and Python modules: `make check` runs it over the changed files."""
