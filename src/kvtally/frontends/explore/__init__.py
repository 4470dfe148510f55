"""The page that people look at: one self-contained file, and the command that opens it."""
